"""Results: the original columns kept, ours beside them, and a file that is whole or absent."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.files import atomic_text
from api.harmless import harmless
from api.results import (
    RESULT_COLUMNS,
    ResultRow,
    result_names,
    save,
    sources_line,
    write_csv,
    write_jsonl,
)
from shared.errors import CraglineError, UsageError

SOURCES: list[dict[str, Any]] = [
    {"title": "Leave", "source": "docs/leave.pdf", "page": 3, "origin": "store"},
    {"title": "A\nlong title", "source": "https://example.org", "page": None, "origin": "web"},
    {"title": "", "source": "notes.txt", "page": 1, "origin": "store"},
]


def row(original: Any, number: int = 1, **changes: Any) -> ResultRow:
    values: dict[str, Any] = {
        "answer": "Yes.",
        "disposition": "answered",
        "reason": None,
        "sources": [],
        "web_used": False,
        "error": None,
        "run_id": 7,
    }
    return ResultRow(number=number, original=original, **{**values, **changes})


def empty(original: Any, number: int) -> ResultRow:
    return ResultRow(number, original, None, None, None, None, None, None, None)


def as_csv(columns: list[str], rows: list[ResultRow], width: int = 0, raw: bool = False) -> list[list[str]]:
    out = io.StringIO(newline="")
    assert write_csv(out, columns, rows, width=width, raw=raw) == len(rows)
    return list(csv.reader(io.StringIO(out.getvalue(), newline="")))


def as_objects(columns: list[str] | None, rows: list[ResultRow]) -> list[dict[str, Any]]:
    out = io.StringIO()
    assert write_jsonl(out, columns, rows) == len(rows)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_csv_puts_ours_after_theirs_in_input_order() -> None:
    rows = [row(["1", "Why?"], sources=SOURCES, web_used=True), empty(["2", " "], 2)]
    assert as_csv(["id", "question"], rows) == [
        ["id", "question", *RESULT_COLUMNS],
        [
            *("1", "Why?", "Yes.", "answered", ""),
            "[1] Leave (docs/leave.pdf, page 3); [2] A long title (https://example.org); [3] notes.txt (page 1)",
            *("true", "", "7", ""),
        ],
        ["2", " ", "", "", "", "", "", "", "", ""],
    ]


def test_csv_is_rfc_4180() -> None:
    out = io.StringIO(newline="")
    write_csv(out, ["q"], [row(['a "b", c\nd'], answer="x\ry")])
    assert out.getvalue().startswith("q,answer,disposition,")
    assert '\r\n"a ""b"", c\nd","x\ry",answered' in out.getvalue()
    assert out.getvalue().endswith("7,\r\n")


def test_repeated_header_names_stay_and_taken_names_are_prefixed() -> None:
    columns = ["name", "name", "answer", "cragline_answer", "run_id"]
    header = as_csv(columns, [])[0]
    assert header[:5] == columns
    assert header[5:] == [
        *(
            "cragline_cragline_answer",
            "disposition",
            "reason",
            "sources",
            "web_used",
            "error",
            "cragline_run_id",
            "notes",
        )
    ]


def test_rows_of_odd_width_stay_aligned_and_lose_nothing() -> None:
    rows = [row(["1"]), row([], 2), row(["1", "2", "3", "4"], 3)]
    ragged = as_csv(["a", "b"], rows)
    assert [cells[ragged[0].index("answer")] for cells in ragged[1:]] == ["Yes."] * 3
    assert ragged[3][10:] == ["3", "4"]
    full = as_csv(["a", "b"], rows, width=4)
    assert full[0][10:] == ["extra_cells_1", "extra_cells_2"]
    assert {len(cells) for cells in full} == {12}
    assert full[3][10:] == ["3", "4"] and full[1][10:] == ["", ""]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "＝"])
def test_no_cell_can_run_as_a_formula_unless_it_is_asked_for(start: str) -> None:
    evil = f"{start}cmd|' /C calc'!A0"
    source = [{"title": evil, "source": "s", "page": None, "origin": "web"}]
    results = [row([evil, "x", evil], answer=evil, reason=evil, error=evil, sources=source, notes=[evil])]
    rows = as_csv(["q", evil], results, width=3)
    cells = dict(zip(rows[0], rows[1], strict=True))
    assert {cells[name] for name in ("q", "answer", "reason", "error", "notes", "extra_cells_1")} == {
        f"'{evil}"
    }
    assert not cells["sources"].startswith(start)
    assert rows[0][1] == f"'{evil}"
    raw = as_csv(["q", evil], results, width=3, raw=True)
    assert raw[0][1] == raw[1][0] == raw[1][2] == raw[1][-1] == evil


@pytest.mark.parametrize("number", ["-1", "+3.5", "-1,234.50", "-4%", "-1e5", "-", "+"])
def test_numbers_with_a_sign_stay_numbers(number: str) -> None:
    expected = number if len(number) > 1 else f"'{number}"
    assert harmless(number) == expected


@pytest.mark.parametrize(
    "text", ["-1+cmd|' /C calc'!A0", "+1-2", "-A1", "@SUM(1)", "-1(2)", "+31 20 123", "=1"]
)
def test_what_only_begins_like_a_number_is_held(text: str) -> None:
    assert harmless(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "me@example.org", "a=b", "'=1", "1-2", " x"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert harmless(text) == text


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8")), min_size=2, max_size=2), max_size=5))
def test_harmless_cells_are_the_text_or_the_text_behind_an_apostrophe(cells: list[list[str]]) -> None:
    written = as_csv(["a", "b"], [row(pair) for pair in cells])
    for pair, found in zip(cells, written[1:], strict=True):
        for before, after in zip(pair, found, strict=False):
            assert after in (before, f"'{before}")
            assert not after.startswith(("=", "@", "\t", "\r", "\n"))
            assert after[:1] not in ("+", "-") or after[1:2].isdigit()
    raw = as_csv(["a", "b"], [row(pair) for pair in cells], raw=True)
    assert [found[:2] for found in raw[1:]] == cells


def test_jsonl_keeps_the_texts_as_they_are() -> None:
    (record,) = as_objects(["q"], [row(["=1"], answer="=2 Größe", sources=SOURCES)])
    assert record == {
        "q": "=1",
        "answer": "=2 Größe",
        "disposition": "answered",
        "reason": None,
        "sources": SOURCES,
        "web_used": False,
        "error": None,
        "run_id": 7,
        "notes": [],
    }


def test_jsonl_of_csv_rows_of_odd_width() -> None:
    short, long = as_objects(["a", "b"], [row(["1"]), row(["1", "2", "3"], 2)])
    assert (short["a"], short["b"], long["b"], long["extra_cells"]) == ("1", None, "2", ["3"])
    assert "extra_cells" not in short


def test_jsonl_of_objects_and_strings() -> None:
    original = {"question": "Why?", "answer": ["42"], "n": 1}
    first, second = as_objects(None, [row(original), row("How?", 2)])
    assert first["answer"] == ["42"] and first["cragline_answer"] == "Yes." and first["n"] == 1
    assert original == {"question": "Why?", "answer": ["42"], "n": 1}
    assert second["question"] == "How?" and second["answer"] == "Yes."


def test_csv_of_objects() -> None:
    originals: list[dict[str, Any]] = [{"q": "Why?", "n": 1.5, "tags": ["é"]}, {"q": None, "x": True}]
    rows = as_csv(
        ["q", "n", "tags", "x"], [row(item, number) for number, item in enumerate(originals, start=1)]
    )
    assert rows[1][:5] == ["Why?", "1.5", '["é"]', "", "Yes."]
    assert rows[2][:5] == ["", "", "", "true", "Yes."]
    assert as_csv(["q"], [row(originals[0])])[1][-1] == '{"n": 1.5, "tags": ["é"]}'


def test_names_and_sources() -> None:
    assert result_names(["question"]) == list(RESULT_COLUMNS)
    assert sources_line(None) is None and sources_line([]) == ""


def test_save_csv_for_excel_and_jsonl_plain(tmp_path: Path) -> None:
    assert save(tmp_path / "o.csv", ["q"], ["q"], [row(["ö"])]) == 1
    assert (tmp_path / "o.csv").read_bytes().startswith(b"\xef\xbb\xbfq,answer")
    assert save(tmp_path / "o.JSONL", ["q"], ["q"], [row(["ö"])]) == 1
    assert json.loads((tmp_path / "o.JSONL").read_text("utf-8"))["q"] == "ö"
    assert save(tmp_path / "o.xlsx", ["q"], ["q"], [row(["ö"])]) == 1
    assert (tmp_path / "o.xlsx").read_bytes().startswith(b"PK")
    assert save(tmp_path / "raw.csv", ["q"], ["q"], [row(["=ö"])], raw=True) == 1
    assert (tmp_path / "raw.csv").read_bytes().startswith(b"q,answer")
    with pytest.raises(UsageError, match=r"o\.ods.*\.csv, \.xlsx or \.jsonl"):
        save(tmp_path / "o.ods", ["q"], ["q"], [])
    assert sorted(item.name for item in tmp_path.iterdir()) == ["o.JSONL", "o.csv", "o.xlsx", "raw.csv"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    def failing() -> Any:
        yield row(["1"])
        raise RuntimeError("the database went away")

    (tmp_path / "o.csv").write_text("old")
    with pytest.raises(RuntimeError):
        save(tmp_path / "o.csv", ["q"], ["q"], failing())
    assert [item.name for item in tmp_path.iterdir()] == ["o.csv"]
    assert (tmp_path / "o.csv").read_text() == "old"


def test_a_replaced_file_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    with atomic_text(link) as out:
        out.write("new")
    assert real.read_text() == "new" and link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_new_file_obeys_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_text(tmp_path / "o.txt") as out:
            out.write("x")
    finally:
        os.umask(before)
    assert (tmp_path / "o.txt").stat().st_mode & 0o777 == 0o640


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CraglineError, match="there is no folder"), atomic_text(tmp_path / "no" / "o.csv"):
        pass
    with pytest.raises(CraglineError, match="folder"), atomic_text(tmp_path):
        pass

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CraglineError, match="No space left"), atomic_text(tmp_path / "o.csv") as out:
        out.write("x")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_ordinary_file_is_written_directly() -> None:
    with atomic_text(Path("/dev/null")) as out:
        out.write("x")
    assert Path("/dev/null").is_char_device()
