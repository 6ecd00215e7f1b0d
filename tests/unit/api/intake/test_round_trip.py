"""Any table, in any dialect and encoding, comes back cell by cell; and memory does not follow the file."""

import csv
import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.intake import open_questions
from shared.errors import UsageError

WESTERN = "Wie läuft das für Größen über 3? ¿Qué año? Où ça, élève; déjà | vu?"
WORDS = st.lists(st.sampled_from(WESTERN.split(" ")), max_size=8).map(" ".join)
cell = st.one_of(
    st.text(st.characters(exclude_categories=("Cc", "Cs", "Cn")), max_size=30),
    st.text('abc ,;|"\t\n', max_size=20),
    st.text(WESTERN, max_size=20),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    width = draw(st.integers(1, 5))
    position = draw(st.integers(0, width - 1))
    header = ["question" if place == position else f"c{place}" for place in range(width)]
    return header, draw(st.lists(st.lists(cell, min_size=width, max_size=width), min_size=1, max_size=12))


@settings(max_examples=300, deadline=None)
@given(
    table=tables(),
    delimiter=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_what_was_written_is_read(
    table: tuple[list[str], list[list[str]]], delimiter: str, encoding: str, quoting: int
) -> None:
    header, rows = table
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", encoding=encoding, newline="") as out:
            csv.writer(out, delimiter=delimiter, quoting=quoting).writerows([header, *rows])
        file = open_questions(path)
        assert file.report.header == header
        assert file.report.question_column == "question"
        assert [row.original for row in file.rows()] == rows
        assert [row.number for row in file.rows()] == list(range(1, len(rows) + 1))


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(WORDS, min_size=1, max_size=12))
def test_western_words_in_cp1252(rows: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", encoding="cp1252", newline="") as out:
            csv.writer(out, quoting=csv.QUOTE_ALL).writerows(
                [["question", "n"], *([row, "é"] for row in rows)]
            )
        assert [row.original for row in open_questions(path).rows()] == [[row, "é"] for row in rows]


def _peak(path: Path) -> int:
    tracemalloc.start()
    try:
        for _ in open_questions(path).rows():
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".txt"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    line = {".csv": "1,How long does it take, on the whole?\n", ".txt": "How long does it take?\n"}
    peaks = []
    for count in (20_000, 80_000):
        path = tmp_path / f"q{count}{suffix}"
        head = "id,question\n" if suffix == ".csv" else ""
        path.write_text(head + line.get(suffix, '{"id": 1, "question": "How long does it take?"}\n') * count)
        peaks.append(_peak(path))
    assert peaks[1] < peaks[0] + 2_000_000  # four times the file; the detection reads blocks of 1 MiB


def _data_files() -> Iterator[Path]:
    folder = os.environ.get("CRAGLINE_TEST_DATA")
    yield from sorted(Path(folder, "wild_batches").iterdir()) if folder else ()


@pytest.mark.data
def test_published_files_keep_every_row() -> None:
    if not os.environ.get("CRAGLINE_TEST_DATA"):
        pytest.skip("CRAGLINE_TEST_DATA does not name the folder of the evaluation data")
    seen = 0
    for path in _data_files():
        if path.suffix != ".csv":
            continue
        file = open_questions(path, "req_description" if path.name.startswith("asvs") else None)
        with path.open(encoding="utf-8-sig", newline="") as stream:
            expected = list(csv.reader(stream, delimiter=file.report.delimiter or ","))[1:]
        assert [row.original for row in file.rows()] == expected, path.name
        seen += 1
    assert seen


# The rows of each published file, counted by other programs; None: the command asks which column is meant.
ROWS = {
    "ai_answers_fr_xdept.csv": 44,
    "ai_answers_range.csv": 21,
    "asvs_de_semicolon_utf8bom.csv": None,
    "banking77_test.csv": 3080,
    "gcloud12_supplier_questions.csv": 315,
    "nq_open_dev.jsonl": 3610,
    "owasp_asvs_checklist_3.0.1.xlsx": 201,
}


@pytest.mark.data
def test_published_files_are_understood_without_a_word() -> None:
    if not os.environ.get("CRAGLINE_TEST_DATA"):
        pytest.skip("CRAGLINE_TEST_DATA does not name the folder of the evaluation data")
    for path in _data_files():
        if (expected := ROWS.get(path.name)) is not None:
            assert sum(1 for _ in open_questions(path).rows()) == expected, path.name
        elif path.name in ROWS:
            with pytest.raises(UsageError, match='longest texts are in "req_description"'):
                open_questions(path)


@pytest.mark.data
def test_a_published_workbook_is_read_as_openpyxl_reads_it() -> None:
    folder = os.environ.get("CRAGLINE_TEST_DATA")
    if not folder:
        pytest.skip("CRAGLINE_TEST_DATA does not name the folder of the evaluation data")
    path = Path(folder, "wild_batches", "owasp_asvs_checklist_3.0.1.xlsx")
    file = open_questions(path)
    assert (file.report.sheet, file.report.header_row) == ("ASVS 3.0.1 Detail Requirements", 1)
    sheet = openpyxl.load_workbook(path, data_only=True)[file.report.sheet or ""]
    read = {row.number: [cell or None for cell in row.original] for row in file.rows()}
    for number, cells in enumerate(sheet.iter_rows(min_row=2, values_only=True), start=1):
        expected = [None if cell is None else str(cell) for cell in cells]
        while expected and expected[-1] is None:
            expected.pop()
        found = read.get(number, [])
        assert found[: len(expected)] == expected and not any(found[len(expected) :])
