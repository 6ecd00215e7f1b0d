"""Answers into the user's own workbook: beside the questions, and nothing else in it changes."""

import copy
import io
import struct
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import xlsxwriter
from lxml import etree

from api.cli import results_into
from api.intake import open_questions
from api.results import ResultRow
from api.results_fill import Filled, fill
from shared.errors import CraglineError, IntakeError, NotFound, UsageError
from tests.unit.api.workbooks import MAIN, made

ROWS = 4
SHEET = "xl/worksheets/sheet2.xml"


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0\0\0" * 2))
        + chunk(b"IEND", b"")
    )


def rich(path: Path) -> Path:
    """A questionnaire with everything that openpyxl would lose or write anew, and some more."""
    with xlsxwriter.Workbook(path) as book:
        book.add_worksheet("Instructions").write("A1", "Please fill in the sheet.")
        sheet = book.add_worksheet("Questions")
        bold = book.add_format({"bold": True, "bg_color": "#DDEEFF", "text_wrap": True})
        wrapped = book.add_format({"text_wrap": True, "border": 1, "locked": False})
        sheet.merge_range("A1:D1", "Supplier questionnaire", bold)
        sheet.write_row("A3", ["Nr", "Question", "Score", "Reply"], bold)
        for number in range(1, ROWS + 1):
            sheet.write_number(number + 2, 0, number)
            sheet.write_string(number + 2, 1, f"What is the {number}th of them?", wrapped)
            sheet.write_formula(number + 2, 2, f"=A{number + 3}*2", None, number * 2)
            sheet.write_blank(number + 2, 5, None, bold)
        sheet.write_rich_string("B9", "Is ", bold, "this", " asked?")
        sheet.write_comment("B4", "a comment")
        sheet.write_url("D4", "https://example.org")
        sheet.data_validation("D4:D9", {"validate": "list", "source": ["yes", "no"]})
        sheet.conditional_format("C4:C9", {"type": "data_bar", "data_bar_2010": True})
        sheet.insert_image("H12", "logo.png", {"image_data": io.BytesIO(png())})
        chart = book.add_chart({"type": "column"})
        chart.add_series({"values": "=Questions!$C$4:$C$7"})
        sheet.insert_chart("H20", chart)
        sheet.set_column("F:XFD", None, None, {"hidden": True})
        sheet.set_row(20, 40)
        sheet.protect("secret")
        book.define_name("Scores", "=Questions!$C$4:$C$7")
        other = book.add_worksheet("Table")
        other.add_table("A1:B3", {"data": [["a", 1], ["b", 2]]})
    with zipfile.ZipFile(path, "a") as archive:  # stands for macros, which no library writes from nothing
        archive.writestr("xl/vbaProject.bin", b"\xd0\xcf\x11\xe0 macro")
    return path


def outcomes(path: Path, column: str | None = None) -> tuple[dict[str, Any], list[ResultRow]]:
    """The batch's source and results, as the database would give them."""
    questions = open_questions(path, column)
    rows = [
        ResultRow(
            row.number,
            row.original,
            f"Answer {row.number}.",
            "answered",
            None,
            [],
            False,
            None,
            row.number + 100,  # type: ignore[arg-type]
        )
        for row in questions.rows()
    ]
    return asdict(questions.report), rows


def filled(original: Path, source: dict[str, Any], rows: list[ResultRow]) -> tuple[bytes, Filled]:
    out = io.BytesIO()
    said = fill(out, original, source, rows)
    return out.getvalue(), said


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {info.filename: archive.read(info) for info in archive.infolist()}


def test_the_answers_are_beside_the_questions(tmp_path: Path) -> None:
    original = rich(tmp_path / "o.xlsx")
    source, rows = outcomes(original)
    rows[1].answer, rows[1].disposition, rows[1].error = None, "failed", "generate: timeout: no answer"
    rows[2].answer = "=1+1 & <b>"
    content, said = filled(original, source, rows)
    assert (said.rows, said.first, said.last, said.notes) == (ROWS + 1, "E", "I", [])
    sheet = openpyxl.load_workbook(io.BytesIO(content))["Questions"]
    assert [cell.value for cell in sheet[3]][4:] == ["answer", "disposition", "reason", "sources", "run_id"]
    assert [sheet.cell(4, column).value for column in range(5, 10)] == [
        "Answer 1.",
        "answered",
        None,
        None,
        101,
    ]
    assert [sheet.cell(5, column).value for column in range(5, 8)] == [
        None,
        "failed",
        "generate: timeout: no answer",
    ]
    assert (sheet["E6"].value, sheet["E6"].data_type) == ("=1+1 & <b>", "s")
    assert sheet["E9"].value == "Answer 6." and sheet["B9"].value == "Is this asked?"
    assert sheet["E4"].alignment.wrap_text and sheet["E3"].font.bold and sheet["F4"].font.bold
    assert not sheet.column_dimensions["E"].hidden and sheet.column_dimensions["E"].width == 60
    assert sheet.column_dimensions["J"].hidden


def test_nothing_else_changes(tmp_path: Path) -> None:
    original = rich(tmp_path / "o.xlsx")
    content, _ = filled(original, *outcomes(original))
    before, after = members(original.read_bytes()), members(content)
    assert list(before) == list(after)
    assert {name for name in before if before[name] != after[name]} == {SHEET}
    assert any("image" in name for name in before) and any("chart" in name for name in before)
    old, new = etree.fromstring(before[SHEET]), etree.fromstring(after[SHEET])
    ours = {f"{letter}{number}" for letter in "EFGHI" for number in range(1, 30)}
    assert _cells(old).items() - _cells(new).items() == {
        (place, xml) for place, xml in _cells(old).items() if place in ours
    }
    assert not _cells(new).keys() - _cells(old).keys() - ours
    for tree in (old, new):
        for cell in [cell for cell in tree.iter(f"{{{MAIN}}}c") if cell.get("r") in ours]:
            cell.getparent().remove(cell)
        for row in tree.iter(f"{{{MAIN}}}row"):
            row.attrib.pop("spans", None)
        for name in ("dimension", "cols"):
            tree.remove(tree.find(f"{{{MAIN}}}{name}"))
    assert etree.tostring(old, method="c14n") == etree.tostring(new, method="c14n")


def _cells(tree: Any) -> dict[str, bytes]:
    found = {}
    for cell in tree.iter(f"{{{MAIN}}}c"):
        alone = copy.deepcopy(cell)
        alone.tail = None
        found[cell.get("r")] = etree.tostring(alone, method="c14n")
    return found


def test_the_copy_is_read_again_as_the_same_questions(tmp_path: Path) -> None:
    original = rich(tmp_path / "o.xlsx")
    source, rows = outcomes(original)
    (tmp_path / "f.xlsx").write_bytes(filled(original, source, rows)[0])
    again = open_questions(tmp_path / "f.xlsx")
    assert [row.question for row in again.rows()] == [row.original[1] for row in rows]  # type: ignore[index]
    # And a second filling finds room beside the first.
    _, said = filled(tmp_path / "f.xlsx", *outcomes(tmp_path / "f.xlsx"))
    assert (said.first, said.last) == ("J", "N")


def test_values_further_right_are_kept_free(tmp_path: Path) -> None:
    rows = [["n", "Question"], ["1", "Why?", None, None, None, "list"], ["2", "How?"]]
    path = made(tmp_path / "o.xlsx", S=rows)
    content, said = filled(path, *outcomes(path))
    assert (said.first, said.last) == ("G", "K")
    assert openpyxl.load_workbook(io.BytesIO(content))["S"]["F2"].value == "list"


@pytest.mark.parametrize(
    ("cell", "value", "said"),
    [
        (
            "B5",
            "What else?",
            'row 5 holds "What else\\?" under "Question", and held "What is the 2th of them\\?"',
        ),
        ("A4", 9, 'row 4 holds "9" under "Nr"'),
        ("B4", None, 'row 4 holds "" under "Question"'),
        ("B12", "A new one?", "row 12 is new"),
        ("N4", "note", "row 4 has other cells beyond the header"),
    ],
)
def test_another_workbook_is_refused_and_the_row_is_named(
    tmp_path: Path, cell: str, value: Any, said: str
) -> None:
    original = made(
        tmp_path / "o.xlsx",
        S=[["Title"], [], ["Nr", "Question"], *([n, f"What is the {n}th of them?"] for n in range(1, 5))],
    )
    source, rows = outcomes(original)
    book = openpyxl.load_workbook(original)
    book["S"][cell] = value
    book.save(tmp_path / "changed.xlsx")
    with pytest.raises(CraglineError, match=said):
        filled(tmp_path / "changed.xlsx", source, rows)


def test_rows_that_are_gone_a_header_or_sheet_that_is_another(tmp_path: Path) -> None:
    lines = [["Nr", "Question"], [1, "Why?"], [2, "How?"]]
    original = made(tmp_path / "o.xlsx", S=lines)
    source, rows = outcomes(original)
    for name, sheets, said in [
        ("a", {"S": lines[:2]}, "row 3 is not there any more"),
        ("b", {"S": [lines[0], [], lines[2]]}, "row 2 is not there any more"),
        ("c", {"S": [["a", "b"], *lines[1:]]}, 'row 1 holds no header such as "Nr"'),
        ("d", {"T": lines}, 'no sheet "S"'),
    ]:
        with pytest.raises(CraglineError, match=said):
            filled(made(tmp_path / f"{name}.xlsx", **sheets), source, rows)


def test_a_workbook_that_was_only_saved_again_is_taken(tmp_path: Path) -> None:
    original = made(tmp_path / "o.xlsx", S=[["Nr", "Question"], [1, "Why?"]])
    source, rows = outcomes(original)
    book = openpyxl.load_workbook(original)
    book["S"].column_dimensions["B"].width = 99
    book.save(tmp_path / "wide.xlsx")
    _, said = filled(tmp_path / "wide.xlsx", source, rows)
    assert said.rows == 1 and "saved again" in said.notes[0]


def test_batches_that_came_from_something_else(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question\nWhy?\n")
    source, rows = outcomes(tmp_path / "q.csv")
    workbook = made(tmp_path / "o.xlsx", S=[["question"], ["Why?"]])
    with pytest.raises(UsageError, match="format csv; only a workbook"):
        filled(workbook, source, rows)
    source, rows = outcomes(workbook)
    with pytest.raises(IntakeError, match="damaged"):
        filled(tmp_path / "q.csv", source, rows)


def test_long_texts_are_cut_out_loud_and_signatures_said(tmp_path: Path) -> None:
    original = made(tmp_path / "o.xlsx", S=[["Nr", "Question"], [1, "Why?"]])
    with zipfile.ZipFile(original, "a") as archive:
        archive.writestr("_xmlsignatures/sig1.xml", b"<x/>")
    source, rows = outcomes(original)
    rows[0].answer = "x" * 40_000
    _, said = filled(original, source, rows)
    assert said.notes == [
        "1 text was cut to what a cell holds.",
        "The workbook was signed; the signature does not hold for the copy.",
    ]


def test_the_command_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original, out = made(tmp_path / "o.xlsx", S=[["Nr", "Question"], [1, "Why?"]]), tmp_path / "f.xlsx"
    source, rows = outcomes(original)
    results_into.write(original, out, source, rows, force=False)
    assert "1 row written to" in capsys.readouterr().err.replace("\n", "")
    before = out.read_bytes()
    for into, output, error, said in [
        (original, out, CraglineError, "there is such a file"),
        (original, original, UsageError, "the original"),
        (original, None, UsageError, "needs --output"),
        (original, tmp_path / "f.csv", UsageError, "has to end in .xlsx"),
        (tmp_path / "no.xlsx", out, NotFound, "no such file"),
    ]:
        with pytest.raises(error, match=said):
            results_into.write(into, output, source, rows, force=False)
    with pytest.raises(UsageError, match="the original"):
        results_into.write(original, original, source, rows, force=True)
    rows[0].answer = "Another."
    results_into.write(original, out, source, rows, force=True)
    assert out.read_bytes() != before
    with pytest.raises(CraglineError, match="is not there any more"):
        results_into.write(original, out, source, [*rows, rows[0]], force=True)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["f.xlsx", "o.xlsx"]
