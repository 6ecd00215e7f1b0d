"""JSON Lines: objects, strings, and lines that are neither."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.intake import InputRow, QuestionFile, open_questions
from shared.errors import IntakeError, UsageError


def opened(folder: Path, *lines: Any, column: str | None = None) -> QuestionFile:
    path = folder / "q.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return open_questions(path, column)


def test_objects_keep_their_fields(tmp_path: Path) -> None:
    first, second = {"id": 1, "Question": " Why? ", "tags": ["a", {"b": None}]}, {"Question": "Où?", "z": 0.5}
    file = opened(tmp_path, first, "", second)
    assert (file.report.format, file.report.question_column, file.report.column_guessed) == (
        "jsonl",
        "Question",
        True,
    )
    assert file.report.columns == ["id", "Question", "tags"]
    assert list(file.rows()) == [InputRow(1, "Why?", first, []), InputRow(2, "Où?", second, [])]


def test_strings(tmp_path: Path) -> None:
    file = opened(tmp_path, '"Why?"', '" "', '"a\\u0000"')
    assert [(row.question, row.original) for row in file.rows()] == [
        ("Why?", ["Why?"]),
        (None, [" "]),
        ("a�", ["a�"]),
    ]
    with pytest.raises(UsageError, match="Omit --column"):
        opened(tmp_path, '"Why?"', column="question")


def test_missing_null_and_number(tmp_path: Path) -> None:
    file = opened(tmp_path, {"question": "Why?", "n": 1}, {"n": 2}, {"question": None}, {"question": 42})
    rows = list(file.rows())
    assert [row.question for row in rows] == ["Why?", None, None, "42"]
    assert rows[1].notes == ['no field "question"'] and rows[3].notes == ["the question is a number"]


@pytest.mark.parametrize(
    ("value", "kind"), [(["a"], "a list"), ({"a": 1}, "an object"), (True, "true or false")]
)
def test_a_question_that_is_no_text_names_row_and_line(tmp_path: Path, value: Any, kind: str) -> None:
    file = opened(tmp_path, {"question": "Why?"}, "", {"question": value})
    with pytest.raises(IntakeError, match=rf'q\.jsonl: row 2 \(line 3\): "question" is {kind}'):
        list(file.rows())


def test_escapes_that_postgres_refuses_are_cleaned_in_keys_and_values(tmp_path: Path) -> None:
    line = r'{"question": "a\u0000b", "k\ud800": ["\udfff", {"x": "\ud83d\ude00"}]}'
    (row,) = opened(tmp_path, line).rows()
    assert row.question == "a�b"
    assert row.original == {"question": "a�b", "k�": ["�", {"x": "\N{GRINNING FACE}"}]}
    assert row.notes == ["NUL or lone surrogate replaced"]
    (pair,) = opened(tmp_path, r'{"question": "\ud83d\ude00"}').rows()
    assert pair.notes == []


def test_an_escaped_nul_in_the_name_of_the_question_field(tmp_path: Path) -> None:
    rows = list(opened(tmp_path, r'{"question\u0000": "Why?"}', r'{"question\u0000": "How?"}').rows())
    assert [row.question for row in rows] == ["Why?", "How?"]


def test_nan_and_infinity_become_null(tmp_path: Path) -> None:
    (row,) = opened(tmp_path, '{"question": "Why?", "a": NaN, "b": [-Infinity, 1e999], "c": 1e3}').rows()
    assert row.original == {"question": "Why?", "a": None, "b": [None, None], "c": 1000.0}
    assert row.notes == ["NaN or infinity replaced by null"]


def test_a_later_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    file = opened(tmp_path, *[{"question": f"{n}?"} for n in range(16)], '{"question": "cut')
    rows = file.rows()
    assert next(rows).question == "0?"
    with pytest.raises(IntakeError, match=r"q\.jsonl: line 17: not JSON .* Mend or remove"):
        list(rows)


@pytest.mark.parametrize("line", ["[" * 100_000, '{"question": ' + "9" * 5000 + "}"])
def test_hostile_json_is_an_ordinary_error(tmp_path: Path, line: str) -> None:
    file = opened(tmp_path, {"question": "Why?"}, line)
    with pytest.raises(IntakeError, match="line 2"):
        list(file.rows())


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        (["[", ' {"question": "a"}', "]"], "line 1: not JSON .*One object a line"),
        (['[{"question": "a"}]'], "line 1: a JSON list"),
        (["id,question", "1,Why?"], "line 1: not JSON"),
        (["{}"], "neither an object with fields"),
        (["17"], "neither an object with fields"),
        (["", "  "], "nothing but blank lines"),
    ],
)
def test_what_is_no_json_lines_is_told_at_once(tmp_path: Path, lines: list[str], match: str) -> None:
    with pytest.raises(IntakeError, match=match):
        opened(tmp_path, *lines)


@pytest.mark.parametrize("lines", [('"Why?"', '{"question": "a"}'), ('{"question": "a"}', '"Why?"')])
def test_strings_and_objects_do_not_mix(tmp_path: Path, lines: tuple[str, str]) -> None:
    with pytest.raises(IntakeError, match=r"row 2 \(line 2\)"):
        list(opened(tmp_path, *lines).rows())


def test_an_unclear_field_is_asked_about(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'1 "id", 2 "title".*--column "title"'):
        opened(tmp_path, {"id": 1, "title": "Why is it so?"})
    assert [row.question for row in opened(tmp_path, {"id": 1, "title": "Why?"}, column="TITLE").rows()] == [
        "Why?"
    ]


def test_a_raw_nul_is_mended_before_the_parser_sees_it(tmp_path: Path) -> None:
    (row,) = opened(tmp_path, '{"question": "a\0b"}').rows()
    assert (row.question, row.notes) == ("a�b", ["NUL replaced"])


@pytest.mark.parametrize(
    ("line", "kept", "notes"),
    [
        (
            '{"question": "a?", "question": "b?"}',
            {"question": "b?"},
            ["the key 'question' stands twice; the last is taken"],
        ),
        (
            '{"question": "b?", "n": [{"x": 1, "x": 2, "x": 3}], "\\u0078\\u0000": 1, "x\\u0000": 2}',
            {"question": "b?", "n": [{"x": 3}], "x\ufffd": 2},
            [
                "the key 'x' stands 3 times; the last is taken",
                "the key 'x\ufffd' stands twice; the last is taken",
                "NUL or lone surrogate replaced",
            ],
        ),
        ('{"question": "b?", "a": {"x": 1}, "b": {"x": 1}}', None, []),
    ],
)
def test_a_key_that_stands_twice_is_noted(
    tmp_path: Path, line: str, kept: dict[str, Any] | None, notes: list[str]
) -> None:
    (row,) = opened(tmp_path, line).rows()
    assert (row.question, row.notes) == ("b?", notes)
    assert row.original == (kept or json.loads(line))


@pytest.mark.parametrize(
    ("number", "kept"),
    [
        ("1.00000000000000000001", "1.0"),
        ("123456789012345678.25", "1.2345678901234568e+17"),
        ("0.1000000000000000055511151231257827", "0.1"),
        ("-1e-400", "-0.0"),
        ("1e-99999999999999999999", "0.0"),
    ],
)
def test_a_number_that_cannot_be_kept_is_noted(tmp_path: Path, number: str, kept: str) -> None:
    (row,) = opened(tmp_path, f'{{"question": "a?", "n": {number}}}').rows()
    assert row.original["n"] == float(kept)  # type: ignore[call-overload]
    assert row.notes == [f"the number {number} is kept as {kept}"]


@pytest.mark.parametrize(
    "number", ["0.1", "1.10", "1E3", "-0.0", "1.7976931348623157e308", "5e-324", "0e-99999999999999999999"]
)
def test_a_number_that_is_kept_is_not(tmp_path: Path, number: str) -> None:
    (row,) = opened(tmp_path, f'{{"question": "a?", "n": {number}, "whole": 12345678901234567890123}}').rows()
    assert row.notes == []
    assert row.original["whole"] == 12345678901234567890123  # type: ignore[call-overload]
