"""Plain .txt: lines, and tables in disguise."""

from pathlib import Path

import pytest

from api.intake import InputRow, open_questions
from shared.errors import IntakeError, UsageError


def test_one_question_a_line_blank_lines_included(tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_bytes(b"\nWho, what?\r\n\r\n  Why; when?\t\r\nNUL\0\r\nlast")
    file = open_questions(path)
    assert (file.report.format, file.report.columns, file.report.column_guessed) == (
        "txt",
        ["question"],
        False,
    )
    assert list(file.rows()) == [
        InputRow(1, None, [""], []),
        InputRow(2, "Who, what?", ["Who, what?"], []),
        InputRow(3, None, [""], []),
        InputRow(4, "Why; when?", ["  Why; when?\t"], []),
        InputRow(5, "NUL�", ["NUL�"], ["NUL replaced"]),
        InputRow(6, "last", ["last"], []),
    ]


def test_a_heading_is_not_a_question(tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_text("Vragen\nWaarom?\n")
    file = open_questions(path)
    assert [(row.number, row.question) for row in file.rows()] == [(1, "Waarom?")]
    assert file.report.columns == ["Vragen"] and "heading" in file.report.notes[0]
    path.write_text("Vragen\n\n")
    with pytest.raises(IntakeError, match="no question"):
        open_questions(path)


@pytest.mark.parametrize("header", ["Nr\tFrage\tBereich", "Nr\tquery\tBereich"])
def test_excels_unicode_text_is_a_table(tmp_path: Path, header: str) -> None:
    path = tmp_path / "q.txt"
    path.write_text(f'{header}\n1\t"Wie, ""so""?\nJa"\tA\n2\tÜber was?\tB\n', "utf-16")
    file = open_questions(path)
    assert (file.report.format, file.report.delimiter, file.report.encoding) == ("csv", "\t", "utf-16-le")
    assert [row.original for row in file.rows()] == [["1", 'Wie, "so"?\nJa', "A"], ["2", "Über was?", "B"]]


def test_a_semicolon_table_with_a_known_header_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_text("id;question\n1;Why?\n2;How?\n")
    assert [row.question for row in open_questions(path).rows()] == ["Why?", "How?"]


def test_questions_with_semicolons_and_tabs_stay_lines(tmp_path: Path) -> None:
    lines = ["First; why?", "Second; how?", "Third\twhen?"]
    path = tmp_path / "q.txt"
    path.write_text("\n".join(lines))
    assert [row.question for row in open_questions(path).rows()] == lines


def test_a_column_of_a_txt_asks_for_a_table(tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_text("id|topic\n1|Why?\n")
    assert [row.question for row in open_questions(path, "topic").rows()] == ["Why?"]
    with pytest.raises(UsageError, match="no column"):
        open_questions(path, "nope")
