"""CSV as it comes: delimiters, quotation marks, headers, rows of odd width."""

import csv
import io
from pathlib import Path

import pytest

from api.intake import InputRow, QuestionFile, open_questions
from shared.errors import IntakeError, UsageError


def opened(folder: Path, text: str, name: str = "q.csv", column: str | None = None) -> QuestionFile:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return open_questions(path, column)


def questions(file: QuestionFile) -> list[str | None]:
    return [row.question for row in file.rows()]


@pytest.mark.parametrize(
    ("delimiter", "said"), [(",", None), (";", "semicolons"), ("\t", "tabs"), ("|", "bars")]
)
def test_delimiters_are_found_although_the_texts_hold_the_others(
    tmp_path: Path, delimiter: str, said: str | None
) -> None:
    rows = [["id", "Question", "note"], ["1", "Who, what; when | where?", "a,b"], ["2", "Why\tnot?", "c;d;e"]]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)
    file = opened(tmp_path, out.getvalue())
    assert file.report.delimiter == delimiter
    assert [row.original for row in file.rows()] == rows[1:]
    assert any(said in note for note in file.report.notes) if said else True


def test_commas_in_a_single_column_are_not_delimiters(tmp_path: Path) -> None:
    file = opened(tmp_path, "Frage\nWer, wie, was?\nWarum, wenn nicht so?\n")
    assert file.report.delimiter is None
    assert questions(file) == ["Wer, wie, was?", "Warum, wenn nicht so?"]
    assert [row.notes for row in file.rows()] == [[], []]


def test_decimal_commas_do_not_beat_the_semicolon(tmp_path: Path) -> None:
    file = opened(tmp_path, "nr;vraag;prijs, in euro\n1;Hoeveel?;3,50\n2;Waarom?;4,20\n")
    assert file.report.delimiter == ";"
    assert questions(file) == ["Hoeveel?", "Waarom?"]


def test_excels_sep_line_decides(tmp_path: Path) -> None:
    file = opened(tmp_path, "sep=;\r\nid;question\r\n1;Why, oh why?\r\n")
    assert [row.original for row in file.rows()] == [["1", "Why, oh why?"]]


def test_newlines_within_quotation_marks(tmp_path: Path) -> None:
    file = opened(tmp_path, 'id,question\r\n1,"First line\r\nsecond ""line"""\r\n2,Next\r\n')
    assert questions(file) == ['First line\r\nsecond "line"', "Next"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path: Path, end: str) -> None:
    assert questions(opened(tmp_path, end.join(["id,question", "1,A?", "2,B?", ""]))) == ["A?", "B?"]


def test_a_row_too_many_or_too_few_is_kept_and_noted(tmp_path: Path) -> None:
    file = opened(tmp_path, "id,question,note\n1,Why?,x,extra\n2,How?\n3\n\n5,When?,y\n")
    rows = list(file.rows())
    assert rows[0] == InputRow(1, "Why?", ["1", "Why?", "x", "extra"], ["row has 4 cells, 3 expected"])
    assert rows[1] == InputRow(2, "How?", ["2", "How?"], ["row has 2 cells, 3 expected"])
    assert rows[2] == InputRow(3, None, ["3"], ["row has 1 cell, 3 expected"])
    assert rows[3] == InputRow(4, None, [], ["blank line"])
    assert rows[4] == InputRow(5, "When?", ["5", "When?", "y"], [])


def test_empty_and_white_cells_are_rows_without_a_question(tmp_path: Path) -> None:
    file = opened(
        tmp_path, 'id,question\n1,\n2,"  \t"\n3,"\N{NO-BREAK SPACE}\N{ZERO WIDTH SPACE}"\n4, Why? \n,\n'
    )
    rows = list(file.rows())
    assert [row.question for row in rows] == [None, None, None, "Why?", None]
    assert rows[3].original == ["4", " Why? "]


def test_nul_and_surrogates_are_cleaned_in_every_cell_and_noted(tmp_path: Path) -> None:
    file = opened(tmp_path, "id,question\na\0b,Why\0?\n2,half \ud83d\n3,\ud83d\ude00 pair\n4,fine\n5,\0\0\n")
    rows = list(file.rows())
    assert rows[0] == InputRow(1, "Why�?", ["a�b", "Why�?"], ["NUL replaced"])
    assert rows[1] == InputRow(2, "half �", ["2", "half �"], ["lone surrogate replaced"])
    assert rows[2].question == "\N{GRINNING FACE} pair"
    assert rows[3].notes == []
    assert rows[4].question is None


def test_a_cell_larger_than_the_csv_modules_default_limit(tmp_path: Path) -> None:
    long = "Why? " * 200_000
    file = opened(tmp_path, f'id,question\n1,"{long}"\n2,{"x" * 9000}\n')
    assert [len(row.original[1]) for row in file.rows()] == [1_000_000, 9000]


def test_repeated_and_empty_header_names_are_made_unique(tmp_path: Path) -> None:
    file = opened(tmp_path, "name,name,,question,name_2,name\n1,2,3,Why?,5,6\n")
    assert file.report.header == ["name", "name", "", "question", "name_2", "name"]
    assert file.report.columns == ["name", "name_3", "column_3", "question", "name_2", "name_4"]


def test_rows_can_be_read_twice(tmp_path: Path) -> None:
    file = opened(tmp_path, "question\nA?\nB?\n")
    assert questions(file) == questions(file) == ["A?", "B?"]


def test_an_unclosed_quotation_mark_names_its_row(tmp_path: Path) -> None:
    file = opened(tmp_path, 'id,question\n1,"Fine"\n2,"Never closed\n3,Why?\n4,How?\n')
    with pytest.raises(IntakeError, match=r"q\.csv: row 2 \(line 3\): a quotation mark .* Close it"):
        list(file.rows())


def test_a_stray_quotation_mark_may_not_swallow_rows(tmp_path: Path) -> None:
    file = opened(tmp_path, 'id,question\n0,Fine?\n1,"Why is this\n2,"What is that"\n3,How?\n')
    with pytest.raises(IntakeError, match=r"row 2 \(line 3\)"):
        list(file.rows())


def test_a_stray_quotation_mark_within_its_line_is_kept_and_noted(tmp_path: Path) -> None:
    file = opened(tmp_path, 'id,question\n1,"Quoted" word?\n2,5" pipe?\n3,How?\n')
    rows = list(file.rows())
    assert [row.question for row in rows] == ["Quoted word?", '5" pipe?', "How?"]
    assert [row.notes for row in rows] == [["stray quotation mark"], [], []]


def test_backslash_escapes_are_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(IntakeError, match=r"row 1 \(line 2\).*doubled"):
        opened(tmp_path, 'id,question\n1,"He said \\"hi\\", why?"\n')


def test_a_cell_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = csv.field_size_limit(1000)
    try:
        file = opened(tmp_path, 'id,question\n1,ok\n2,"' + "line\n" * 500)
        with pytest.raises(IntakeError, match=r"row 2 \(line 3\).*characters"):
            list(file.rows())
    finally:
        csv.field_size_limit(before)


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.intake.lines.MAX_TEXT", 100)
    with pytest.raises(IntakeError, match="line 2 is longer than 100"):
        list(opened(tmp_path, "question\n" + "x" * 500).rows())


def test_a_single_column_without_header(tmp_path: Path) -> None:
    file = opened(tmp_path, "How do I log in?\nWhere is it?\n")
    assert questions(file) == ["How do I log in?", "Where is it?"]
    assert file.report.columns == ["question"] and "no header" in file.report.notes[0]
    named = opened(tmp_path, "How do I log in?\nWhere is it?\n", column="how do I log in?")
    assert questions(named) == ["Where is it?"]
    with pytest.raises(IntakeError, match="row 2"):
        list(opened(tmp_path, 'How?\n"Why\n').rows())


def test_a_first_line_that_may_be_either_is_asked_about(tmp_path: Path) -> None:
    text = "how do i locate my card\nwhere is it\n"
    with pytest.raises(UsageError, match="--column 1"):
        opened(tmp_path, text)
    assert questions(opened(tmp_path, text, column="1")) == ["where is it"]


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    file = opened(tmp_path, "question\nA?\n")
    (tmp_path / "q.csv").write_text("question\nA?\nB?\n")
    with pytest.raises(IntakeError, match="changed"):
        list(file.rows())


def test_tsv_prefers_tabs(tmp_path: Path) -> None:
    file = opened(tmp_path, "a,b\tquestion,c\n1,2\tWhy,3\n", "q.tsv", column="2")
    assert [row.original for row in file.rows()] == [["1,2", "Why,3"]]
