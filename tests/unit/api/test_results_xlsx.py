"""Results as a workbook, read back by openpyxl and by our own reader."""

import io
import re
import tempfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from openpyxl.workbook import Workbook

from api import results_xlsx
from api.intake import open_questions
from api.results import RESULT_COLUMNS, ResultRow
from api.results_xlsx import CUT, MAX_CELL, fitted, web_address, write_xlsx
from shared.errors import CraglineError
from tests.unit.api.test_results import row

NAMES = [*RESULT_COLUMNS, "link_1", "link_2", "link_3"]
Summary = list[tuple[str, Any]]


def written(columns: list[str], rows: list[ResultRow], **more: Any) -> Workbook:
    out = io.BytesIO()
    assert write_xlsx(out, columns, rows, **more) == len(rows)
    return openpyxl.load_workbook(out)


def values(book: Workbook, sheet: str = "Results") -> list[list[Any]]:
    return [[cell.value for cell in cells] for cells in book[sheet].iter_rows()]


def web(source: str) -> dict[str, Any]:
    return {"title": "T", "source": source, "page": None, "origin": "web"}


def test_the_rows_and_their_looks() -> None:
    book = written(["id", "question"], [row(["1", "Why?"], web_used=True, notes=["mended", "no web"])])
    assert values(book) == [
        ["id", "question", *NAMES],
        ["1", "Why?", "Yes.", "answered", None, None, True, None, 7, "mended; no web", None, None, None],
    ]
    sheet = book["Results"]
    assert sheet.freeze_panes == "A2" and sheet.auto_filter.ref == "A1:M2"
    assert sheet["C2"].alignment.wrap_text and sheet["A1"].font.bold
    assert sheet.column_dimensions["B"].width >= 9


def test_formulas_are_text_with_the_quote_that_keeps_them_so() -> None:
    book = written(["q"], [row(["=1+1"], answer="@SUM(A1)", reason="-5")])
    cells = book["Results"][2]
    assert [(cell.value, cell.data_type) for cell in cells[:2]] == [("=1+1", "s"), ("@SUM(A1)", "s")]
    assert [bool(cell.quotePrefix) for cell in cells[:4]] == [True, True, False, False]


def test_only_addresses_of_the_web_are_links() -> None:
    sources = [
        web("https://example.org/a?b=1&c=<2>"),
        web("javascript:alert(1)"),
        web("file:///etc/passwd"),
        web("https://example.org/x y"),
        web("http://example.org/1"),
        web("https://example.org/" + "z" * 2100),
    ]
    sheet = written(["q"], [row(["Why?"], sources=sources)])["Results"]
    links = [cell.hyperlink.target if cell.hyperlink else cell.value for cell in sheet[2][9:12]]
    assert links == ["http://example.org/1", sources[5]["source"], None]
    assert sheet[2][9].hyperlink and not sheet[2][10].hyperlink


@pytest.mark.parametrize(
    ("source", "is_one"),
    [
        ("https://a.org", True),
        ("HTTP://a.org/ü", True),
        ("https://", False),
        ("https://[", False),
        ("docs/a.pdf", False),
        ("internal:Sheet1!A1", False),
        ("http://a.org\n", False),
        (None, False),
    ],
)
def test_addresses(source: Any, is_one: bool) -> None:
    assert (web_address(source) is not None) == is_one


def test_no_more_links_than_a_sheet_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results_xlsx, "MAX_LINKS", 1)
    rows = [row([str(n)], sources=[web(f"http://a.org/{n}")]) for n in range(2)]
    sheet = written(["q"], rows)["Results"]
    assert sheet["J2"].hyperlink and not sheet["J3"].hyperlink and sheet["J3"].value == "http://a.org/1"


def test_long_texts_are_cut_out_loud() -> None:
    long = "😀" * MAX_CELL
    book = written(["q"], [row(["Why?"], answer=long, notes=["n"]), row(["How?"], 2)])
    answer, notes = book["Results"]["B2"].value, book["Results"]["I2"].value
    assert answer.endswith(CUT) and set(answer.removesuffix(CUT)) == {"😀"}
    assert MAX_CELL - 2 < len(answer.encode("utf-16-le")) // 2 <= MAX_CELL
    assert notes == "n; a text was cut to what a cell holds"
    assert values(book, "Summary") == [["rows with a cell that was cut", 1]]
    assert fitted("x" * MAX_CELL) == ("x" * MAX_CELL, False)


def test_characters_that_xml_cannot_hold() -> None:
    book = written(["q"], [row(["a\x00b\x1fc\ufffe"], answer="l1\r\nl2\rl3\vl4")])
    assert values(book)[1][:2] == ["a�b�c�", "l1\nl2\nl3\nl4"]


def test_more_rows_than_a_sheet_holds_go_to_further_sheets() -> None:
    book = written(["q"], [row([str(n)], n) for n in range(5)], rows_per_sheet=3, summary=[("Batch", None)])
    assert book.sheetnames == ["Results", "Results 2", "Results 3", "Summary"]
    assert [[cells[0] for cells in values(book, name)[1:]] for name in book.sheetnames[:3]] == [
        ["0", "1"],
        ["2", "3"],
        ["4"],
    ]
    assert values(book, "Results 3")[0] == ["q", *NAMES]


def test_short_and_long_rows_and_objects() -> None:
    rows = [row(["1"]), row(["1", "2", "3"], 2)]
    found = values(written(["a", "b"], rows, width=3))
    assert found[0][-1] == "extra_cells_1" and found[2][-1] == "3" and found[1][1] is None
    objects = values(written(["n", "x"], [row({"n": 1.5, "x": ["é"]})]))
    assert objects[1][:2] == ["1.5", '["é"]']
    with pytest.raises(CraglineError, match="more than a sheet has"):
        written([str(n) for n in range(16_380)], [])


def test_the_summary() -> None:
    facts: Summary = [("Batch", None), ("answered", 3), ("cost", 0.25), ("note", "=1"), ("ok", True)]
    book = written(["q"], [], summary=facts)
    assert values(book, "Summary") == [
        ["Batch", None],
        ["answered", 3],
        ["cost", 0.25],
        ["note", "=1"],
        ["ok", "True"],
    ]
    assert book["Summary"]["B4"].quotePrefix


_TEXT = st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda text: "_x005F_x" not in text)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(_TEXT, min_size=2, max_size=2), min_size=1, max_size=4), st.booleans())
@example([["_x0041_", "a _x000D_ b"]], False)
def test_what_is_written_is_read_again(cells: list[list[str]], formulas: bool) -> None:
    """By our own intake, as a batch of its own."""
    if formulas:
        cells = [[f"={text}" for text in pair] for pair in cells]
    out = io.BytesIO()
    write_xlsx(out, ["question", "b"], [row(pair) for pair in cells])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.xlsx"
        path.write_bytes(out.getvalue())
        read = list(open_questions(path, "question", header_row=1).rows())
    assert [found.original[:2] for found in read] == [[fitted(text)[0] for text in pair] for pair in cells]


def test_memory_does_not_grow_with_the_rows() -> None:
    class Nowhere(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            return len(data)

    def rows(count: int) -> Iterator[ResultRow]:
        for number in range(count):
            yield row([f"How long does it take, the {number}th time?"], number)

    peaks = []
    for count in (1_000, 4_000):
        tracemalloc.start()
        write_xlsx(Nowhere(), ["question"], rows(count))  # type: ignore[arg-type]
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 300_000


def test_the_xml_holds_no_formula() -> None:
    out = io.BytesIO()
    write_xlsx(out, ["=1"], [row(["=1"], answer="=2", notes=["=3"])], summary=[("=4", "=5")])
    with zipfile.ZipFile(out) as archive:
        sheets = [archive.read(name) for name in archive.namelist() if re.search(r"sheet\d+\.xml$", name)]
    assert len(sheets) == 2 and not any(b"<f>" in sheet for sheet in sheets)
