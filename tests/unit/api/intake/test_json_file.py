"""JSON as people write it: comments, trailing commas, the list within an object."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intake import QuestionFile, open_questions
from api.intake.json_file import without_comments
from shared.errors import IntakeError, UsageError


def opened(folder: Path, text: str, column: str | None = None) -> QuestionFile:
    (folder / "q.json").write_text(text, encoding="utf-8")
    return open_questions(folder / "q.json", column)


def test_a_list_of_objects_and_one_of_strings(tmp_path: Path) -> None:
    file = opened(tmp_path, '[{"id": 1, "question": " Why? "}, {"question": null, "x": [2]}]')
    assert (file.report.format, file.report.columns) == ("json", ["id", "question", "x"])
    for _ in range(2):  # reading it again gives the same
        assert [(row.question, row.original, row.notes) for row in file.rows()] == [
            ("Why?", {"id": 1, "question": " Why? "}, []),
            (None, {"question": None, "x": [2]}, []),
        ]
    strings = opened(tmp_path, '["Why?", " "]')
    assert [(row.question, row.original) for row in strings.rows()] == [("Why?", ["Why?"]), (None, [" "])]


def test_comments_and_trailing_commas(tmp_path: Path) -> None:
    text = (
        '// by hand\n[\n  {"question": "See http://x // no comment /* nor this */, ok?",},\n  /* , ] */\n]\n'
    )
    file = opened(tmp_path, text)
    assert [row.question for row in file.rows()] == ["See http://x // no comment /* nor this */, ok?"]
    assert "Comments or trailing commas were passed over." in file.report.notes


def test_the_list_within_an_object(tmp_path: Path) -> None:
    file = opened(tmp_path, '{"title": "t", "data": {"items": [{"text": "Why?"}]}, "tags": []}')
    assert [row.question for row in file.rows()] == ["Why?"]
    assert file.report.notes[0] == 'The questions are in the list "data.items".'
    two = '{"tags": [{"name": "a"}], "questions": ["Why?"], "codes": ["x"]}'
    assert [row.question for row in opened(tmp_path, two).rows()] == ["Why?"]
    with pytest.raises(IntakeError, match=r'several lists.*"a", "b"'):
        opened(tmp_path, '{"a": [{"x": 1}], "b": [{"x": 2}]}')
    assert [row.question for row in opened(tmp_path, '{"a": [{"x": 1}], "b": [{"y": "?"}]}', "y").rows()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"question": "Why?"}', "not JSON .*line 1"),
        ('{"question": "Why?"}\n{"question": "How?"}\n', "jsonl"),
        ('{"question": "Why?"}', "no list of objects or strings"),
        ("[]", "no list"),
        ("[1, 2]", "no list"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ('[{"question": "Why?"}, 7]', "item 2: not an object"),
        ('[{"question": ["Why?"]}]', 'item 1: "question" is a list'),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(IntakeError, match=said):
        list(opened(tmp_path, text).rows())


def test_choices_that_are_asked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Omit --column"):
        opened(tmp_path, '["Why?"]', "x")
    with pytest.raises(UsageError, match='longest texts are in "b"'):
        opened(tmp_path, '[{"a": "x", "b": "long enough"}]')


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(_JSON, st.sampled_from([None, 2]))
def test_json_without_comments_stays_the_same(value: Any, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    assert without_comments(text) == text


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1))
def test_commented_lists_keep_their_texts(texts: list[str]) -> None:
    inner = ', // x\n /* " */'.join(json.dumps(text, ensure_ascii=False) for text in texts)
    with tempfile.TemporaryDirectory() as folder:
        assert [row.original for row in opened(Path(folder), f"[{inner},]").rows()] == [[t] for t in texts]
