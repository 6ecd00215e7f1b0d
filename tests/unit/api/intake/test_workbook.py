"""Workbooks as people hand them over: sheet, header and column are found, and said; or asked about."""

from pathlib import Path
from typing import Any

import openpyxl
import pytest

from api.intake import InputRow, IntakeReport, QuestionFile, open_questions
from shared.errors import IntakeError, UsageError
from tests.unit.api.workbooks import bare, made

QUESTIONS = [["1", "Why?", "x"], ["2", "How?", "y"], ["3", "Where?", "z"]]
INSTRUCTIONS = [["How to fill in the questions"], ["Answer all questions in the sheet."], ["Send it back."]]


def opened(folder: Path, column: str | None = None, **sheets: Any) -> QuestionFile:
    return open_questions(made(folder / "b.xlsx", **sheets), column)


def test_a_plain_sheet(tmp_path: Path) -> None:
    file = opened(tmp_path, Sheet1=[["id", "Question", "note"], *QUESTIONS])
    digest = file.report.sha256
    assert file.report == IntakeReport(
        "b.xlsx",
        "xlsx",
        "utf-8",
        None,
        ["id", "Question", "note"],
        ["id", "Question", "note"],
        "Question",
        True,
        ['The question column was guessed: "Question".'],
        "Sheet1",
        1,
        1,
        digest,
    )
    assert list(file.rows()) == [
        InputRow(number, row[1], row, []) for number, row in enumerate(QUESTIONS, start=1)
    ]


def test_an_instruction_sheet_titles_and_a_header_in_row_three(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    first = book.active
    assert first is not None
    first.title = "Instructions"
    for row in INSTRUCTIONS:
        first.append(row)
    sheet = book.create_sheet("Supplier questions")
    for cells in (
        ["Supplier questions 2026"],
        ["Please answer each question"],
        ["Ref", "Question", "Answer"],
    ):
        sheet.append(cells)
    sheet.merge_cells("A1:C1")
    for number in range(1, 6):
        sheet.append([f"Q{number}", f"What is the {number}th of them?"])
    book.create_sheet("Old questions").sheet_state = "hidden"
    book["Old questions"].append(["Question"])
    book["Old questions"].append(["What was?"])
    book.save(tmp_path / "b.xlsx")
    file = open_questions(tmp_path / "b.xlsx")
    assert (file.report.sheet, file.report.header_row, file.report.columns) == (
        "Supplier questions",
        3,
        ["Ref", "Question", "Answer"],
    )
    assert file.report.notes[:2] == [
        'The questions are in sheet "Supplier questions"; passed over: "Old questions" (hidden), "Instructions".',
        "The header is in row 3; 2 rows above it passed over.",
    ]
    rows = list(file.rows())
    assert [(row.number, row.original) for row in rows[:2]] == [
        (1, ["Q1", "What is the 1th of them?", ""]),
        (2, ["Q2", "What is the 2th of them?", ""]),
    ]
    hidden = open_questions(tmp_path / "b.xlsx", sheet="old questions")
    assert [row.question for row in hidden.rows()] == ["What was?"]
    assert 'The sheet "Old questions" is hidden.' in hidden.report.notes


def test_blank_rows_are_no_rows_and_do_not_renumber_the_others(tmp_path: Path) -> None:
    file = opened(tmp_path, S=[[], ["id", "Question"], ["1", "Why?"], [], ["3", None], ["4", "How?"], [" "]])
    assert file.report.header_row == 2
    assert [(row.number, row.question, row.original) for row in file.rows()] == [
        (1, "Why?", ["1", "Why?"]),
        (3, None, ["3", ""]),
        (4, "How?", ["4", "How?"]),
        (5, None, [" ", ""]),
    ]


def test_a_table_that_begins_further_right_and_cells_beyond_it(tmp_path: Path) -> None:
    file = opened(tmp_path, S=[["Title"], [None, "Nr", "Question"], [None, "1", "Why?", None, "more"]])
    assert (file.report.first_column, file.report.columns) == (2, ["Nr", "Question"])
    (row,) = file.rows()
    assert row.original == ["1", "Why?", "", "more"] and row.notes == ["row has 4 cells, 2 expected"]
    assert "There is text beyond the header, in E; it is kept as extra cells." in file.report.notes


def test_a_header_of_two_rows_and_headings_within_the_table(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    rows = [["Nr", "Question", "Reply", None], [None, None, "yes/no", "why"], ["Part one", None, None, None]]
    for row in [*rows, ["1", "Is it?", None, None], ["2", "Is it open?", "yes", None]]:
        sheet.append(row)
    for merged in ("A1:A2", "B1:B2", "C1:D1", "A3:D3"):
        sheet.merge_cells(merged)
    book.save(tmp_path / "b.xlsx")
    file = open_questions(tmp_path / "b.xlsx")
    assert (file.report.columns, file.report.header_row) == (["Nr", "Question", "yes/no", "why"], 2)
    assert "The header is in rows 1 to 2." in file.report.notes
    asked = open_questions(tmp_path / "b.xlsx", "Nr")
    assert [(row.question, row.notes) for row in asked.rows()] == [
        (None, ["a heading over all columns, not a question"]),
        ("1", []),
        ("2", []),
    ]


def test_formulas_errors_and_hidden_rows_are_said(tmp_path: Path) -> None:
    sheet = (
        '<row r="1"><c t="str"><v>Question</v></c><c t="str"><v>n</v></c></row>'
        '<row r="2" hidden="1"><c t="str"><f>A9</f><v>Why?</v></c></row>'
        '<row r="3"><c><f>A9</f></c><c><v>1</v></c></row><row r="4"><c t="e"><v>#N/A</v></c></row>'
    )
    file = open_questions(bare(tmp_path / "b.xlsx", sheet))
    assert [(row.question, row.notes) for row in file.rows()] == [
        ("Why?", ["hidden row"]),
        (None, ["the question is a formula without a stored value"]),
        (None, ["the question cell holds the error #N/A"]),
    ]
    said = " ".join(file.report.notes)
    assert "1 row is hidden" in said and "1 formula without a stored value" in said
    assert "1 cell with an error value" in said


def test_a_list_without_a_header(tmp_path: Path) -> None:
    file = opened(tmp_path, S=[["Why is that?"], ["And how"]])
    assert [row.question for row in file.rows()] == ["Why is that?", "And how"]
    assert (file.report.header_row, file.report.columns) == (0, ["question"])
    assert any("no header" in note for note in file.report.notes)
    path = made(tmp_path / "c.xlsx", S=[["Tell me of it"], ["And of that"]])
    forced = open_questions(path, header_row=0)
    assert [row.question for row in forced.rows()] == ["Tell me of it", "And of that"]


def test_the_header_row_can_be_said(tmp_path: Path) -> None:
    path = made(tmp_path / "b.xlsx", S=[["a", "Question"], ["b", "Prompt"], ["c", "Why?"]])
    file = open_questions(path, header_row=2)
    assert (file.report.question_column, [row.question for row in file.rows()]) == ("Prompt", ["Why?"])
    with pytest.raises(UsageError, match="too far down"):
        open_questions(path, header_row=99)
    with pytest.raises(IntakeError, match="no row after it"):
        open_questions(path, "2", header_row=3)


def test_a_row_of_data_is_not_taken_for_the_header(tmp_path: Path) -> None:
    rows = [["ID", "Requirement", "Kind"], ["1", "It must be so", "Question"], ["2", "It must", "Question"]]
    file = opened(tmp_path, S=rows)
    assert (file.report.question_column, file.report.header_row) == ("Requirement", 1)


def test_two_sheets_that_could_be_meant_are_asked_about(tmp_path: Path) -> None:
    path = made(tmp_path / "b.xlsx", A=[["n", "Question"], *QUESTIONS], B=[["n", "Question"], *QUESTIONS])
    with pytest.raises(UsageError, match=r'several sheets could hold the questions: "A", "B".*--sheet'):
        open_questions(path)
    assert open_questions(path, sheet="2").report.sheet == "B"
    with pytest.raises(UsageError, match=r'no sheet "C"\. The sheets are: 1 "A", 2 "B"'):
        open_questions(path, sheet="C")


def test_the_surer_or_much_longer_sheet_wins(tmp_path: Path) -> None:
    many = [[str(n), f"Why {n}?"] for n in range(40)]
    path = made(tmp_path / "b.xlsx", A=[["n", "Question"], *QUESTIONS[:1]], B=[["n", "Question"], *many])
    assert open_questions(path).report.sheet == "B"
    path = made(tmp_path / "c.xlsx", A=[["n", "Prompt"], *many], B=[["n", "Question"], *QUESTIONS])
    assert open_questions(path).report.sheet == "B"


def test_no_sheet_with_such_a_name_suggests_the_longest_texts(tmp_path: Path) -> None:
    rows = [["ref", "body"], ["1", "Something long to be said of it"], ["2", "And of that"]]
    path = made(tmp_path / "b.xlsx", A=rows, B=[["x", "y"], ["1", "2"]])
    with pytest.raises(UsageError, match='--sheet "A" --column "body"'):
        open_questions(path)
    assert open_questions(path, "BODY").report.sheet == "A"
    with pytest.raises(UsageError, match=r'longest texts are in "body".*row 1 \(--header-row\)'):
        open_questions(path, sheet="A")


def test_empty_workbooks_and_headers_alone(tmp_path: Path) -> None:
    with pytest.raises(IntakeError, match="sheets are empty"):
        opened(tmp_path, A=[], B=[])
    with pytest.raises(UsageError, match="no table was found"):
        opened(tmp_path, A=[["Question"]])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"question\nWhy?\n", "name it .csv"),
        (b"<html><table><tr><td>Why?</td></tr></table></html>", "web page"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600 + "Workbook".encode("utf-16-le"),
            "save it as .xlsx",
        ),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 70_000 + "EncryptedPackage".encode("utf-16-le"),
            "protected by a password",
        ),
    ],
)
@pytest.mark.parametrize("suffix", [".xlsx", ".xls"])
def test_what_is_no_workbook(tmp_path: Path, content: bytes, said: str, suffix: str) -> None:
    path = tmp_path / f"b{suffix}"
    path.write_bytes(content)
    with pytest.raises(IntakeError, match=said):
        open_questions(path)


def test_sheet_and_header_row_are_for_workbooks_only(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("question\nWhy?\n")
    for words in ({"sheet": "A"}, {"header_row": 1}):
        with pytest.raises(UsageError, match="only spreadsheets"):
            open_questions(tmp_path / "q.csv", **words)  # type: ignore[arg-type]
