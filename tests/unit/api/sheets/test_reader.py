"""Sheets as programs write them, and as they should not be."""

import io
import tempfile
import tracemalloc
import zipfile
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.sheets import package
from api.sheets.reader import Cell, Facts, SheetRow, open_workbook
from shared.errors import IntakeError
from tests.unit.api.workbooks import MAIN, bare, made


def texts(path: Path, sheet: int = 0, facts: Facts | None = None) -> list[list[str]]:
    """The rows of a sheet, without what is empty."""
    with open_workbook(path) as book:
        return [[cell.text for cell in row.cells.values()] for row in book.rows(book.sheets[sheet], facts)]


def test_values_of_every_kind(tmp_path: Path) -> None:
    row = [1, 2.5, True, False, "text", date(2024, 3, 1), datetime(2024, 3, 1, 12, 30), time(9, 5)]
    path = made(tmp_path / "b.xlsx", Sheet=[[*row, timedelta(hours=30), "ünï 😀 日本", " a\nb "]])
    assert texts(path) == [
        [
            *("1", "2.5", "TRUE", "FALSE", "text", "2024-03-01", "2024-03-01 12:30:00", "09:05:00"),
            *("30:00:00", "ünï 😀 日本", " a\nb "),
        ]
    ]


def test_rich_text_phonetics_and_escapes(tmp_path: Path) -> None:
    strings = (
        "<si><r><t>Why </t></r><r><rPr><b/></rPr><t>now</t></r><r><t>?</t></r></si>"
        "<si><t>東京</t><rPh sb='0' eb='2'><t>トウキョウ</t></rPh></si>"
        "<si><t>a_x000D_b</t></si><si/>"
    )
    cells = "".join(f'<c t="s"><v>{number}</v></c>' for number in range(4))
    path = bare(tmp_path / "b.xlsx", f"<row>{cells}</row>", strings=strings)
    assert texts(path) == [["Why now?", "東京", "a\rb"]]


def test_formulas_errors_and_inline_text(tmp_path: Path) -> None:
    sheet = (
        '<row r="2"><c r="B2"><f>1+1</f><v>2</v></c><c r="C2"><f>A9</f></c><c r="D2" t="str"><f>A9</f><v></v></c>'
        '<c r="E2" t="e"><v>#REF!</v></c><c r="F2" t="inlineStr"><is><t>in</t></is></c>'
        '<c r="G2" t="d"><v>2024-03-01T00:00:00</v></c></row>'
    )
    path, facts = bare(tmp_path / "b.xlsx", sheet), Facts()
    with open_workbook(path) as book:
        (row,) = book.rows(book.sheets[0], facts)
    assert row == SheetRow(
        2,
        False,
        {
            2: Cell("2", False, False),
            3: Cell("", False, True),
            5: Cell("#REF!", True, False),
            6: Cell("in", False, False),
            7: Cell("2024-03-01", False, False),
        },
    )
    assert facts.formulas == 3


@pytest.mark.parametrize("namespace", [MAIN, "http://purl.oclc.org/ooxml/spreadsheetml/main"])
def test_prefixes_strict_workbooks_and_foreign_elements(tmp_path: Path, namespace: str) -> None:
    sheet = (
        f'<?xml version="1.0"?><x:worksheet xmlns:x="{namespace}" xmlns:o="urn:other"><x:sheetData><x:row>'
        "<x:c><x:v>1</x:v></x:c><o:c><o:v>2</o:v></o:c></x:row></x:sheetData></x:worksheet>"
    )
    assert texts(bare(tmp_path / "b.xlsx", sheet)) == [["1"]]


def test_what_is_hidden_merged_and_linked(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (["a", "b"], ["c", "d"]):
        sheet.append(row)
    sheet.row_dimensions[2].hidden = True
    sheet.column_dimensions["B"].hidden = True
    sheet.merge_cells("A4:C4")
    sheet["A1"].hyperlink = "https://example.org"
    book.create_sheet("Other").sheet_state = "veryHidden"
    book.save(tmp_path / "b.xlsx")
    facts = Facts()
    with open_workbook(tmp_path / "b.xlsx") as opened:
        assert [(part.name, part.hidden) for part in opened.sheets] == [("Sheet", False), ("Other", True)]
        assert [row.hidden for row in opened.rows(opened.sheets[0], facts)] == [False, True]
    assert (facts.hidden_columns, facts.merges, facts.links) == ({2}, [(4, 1, 4, 3)], 1)


def test_dates_count_from_1904_where_the_workbook_says_so(tmp_path: Path) -> None:
    styles = '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
    path = bare(
        tmp_path / "b.xlsx",
        '<row><c s="1"><v>0</v></c><c s="9"><v>0</v></c></row>',
        styles=styles,
        workbook_pr='<workbookPr date1904="1"/>',
    )
    assert texts(path) == [["1904-01-01", "0"]]


# What a cell can hold; openpyxl writes "=..." as a formula, and refuses control characters.
_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\ufffe\uffff\r"), max_size=30
).filter(
    lambda text: (
        not text.startswith("=")
        and "_x" not in text
        and not openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE.search(text)
    )
)
_VALUE = st.one_of(
    st.none(), _TEXT, st.booleans(), st.integers(-(10**14), 10**14), st.floats(-1e9, 1e9, width=32)
)


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return repr(float(f"{value:.16g}")) if isinstance(value, float) else str(value)  # as openpyxl writes it


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(_VALUE, max_size=5), max_size=6))
def test_what_openpyxl_writes_is_read(rows: list[list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = made(Path(folder) / "b.xlsx", Sheet=rows)
        with open_workbook(path) as book:
            read = {row.number: row.cells for row in book.rows(book.sheets[0])}
    for number, row in enumerate(rows, start=1):
        expected = {place: shown(v) for place, v in enumerate(row, 1) if v is not None and shown(v)}
        found = {column: cell.text for column, cell in read.get(number, {}).items()}
        assert found == expected


# -- what is refused -------------------------------------------------------------------------------------
LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    f'<worksheet xmlns="{MAIN}"><sheetData><row><c t="str"><v>&b;</v></c></row></sheetData></worksheet>'
)
OUTSIDE = (
    '<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
    f'<worksheet xmlns="{MAIN}"><sheetData><row><c t="str"><v>&a;</v></c></row></sheetData></worksheet>'
)


@pytest.mark.parametrize(
    ("sheet", "said"),
    [
        (LAUGHS, "declares a document type"),
        (OUTSIDE, "declares a document type"),
        ("<row><c>", "broken XML"),
        ('<?xml version="1.0" encoding="ISO-8859-1"?><worksheet/>', "not UTF-8"),
        ('<row r="3"/><row r="2"/>', "row 2 after row 3"),
        ('<row r="1048577"/>', "row 1048577"),
        (f'<row r="{"9" * 5000}"/>', "row 0 after row 0"),
        ('<row><c t="s"><v>-1</v></c></row>', "not in the workbook"),
        ('<row r="1"><c r="B2"/></row>', "names another place"),
        ('<row r="1"><c r="XFE1"/></row>', "names another place"),
        ('<row><c t="s"><v>7</v></c></row>', "not in the workbook"),
        ("<row>" + "<a>" * 100 + "</a>" * 100 + "</row>", "nested more than"),
    ],
)
def test_sheets_that_are_refused(tmp_path: Path, sheet: str, said: str) -> None:
    with pytest.raises(IntakeError, match=said) as caught:
        texts(bare(tmp_path / "b.xlsx", sheet))
    assert str(caught.value).startswith(str(tmp_path / "b.xlsx"))


def test_utf_16_is_refused(tmp_path: Path) -> None:
    bare(tmp_path / "b.xlsx", "<row/>")
    out = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "b.xlsx") as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            wide = content.decode().partition("?>")[2].strip().encode("utf-16")
            new.writestr(name, wide if "sheet1" in name else content)
    (tmp_path / "c.xlsx").write_bytes(out.getvalue())
    with pytest.raises(IntakeError, match="not UTF-8"):
        texts(tmp_path / "c.xlsx")


_SOURCE = (
    '<cols><col min="1" max="3" hidden="1"/></cols><sheetData><row r="1" spans="1:2"><c r="A1" s="1" t="s"><v>0</v></c>'
    '<c r="B1"><f>A1</f><v>45352.5</v></c></row><row r="2" hidden="1"><c r="A2" t="inlineStr"><is><r><t>x</t></r></is>'
    '</c><c r="B2" t="b"><v>1</v></c></row></sheetData><mergeCells><mergeCell ref="A1:B2"/></mergeCells>'
)
_ODD = st.sampled_from(
    ["", "²", "-1", "9" * 20, "A", "<", '"', "&#0;", "/", "1e999", "nan", "\x0b", " ", "🙂"]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, len(_SOURCE)), st.integers(0, 6), _ODD), min_size=1, max_size=4))
def test_a_sheet_that_was_tampered_with_is_read_or_refused(edits: list[tuple[int, int, str]]) -> None:
    """Never any other error."""
    sheet = _SOURCE
    for at, length, odd in edits:
        sheet = sheet[:at] + odd + sheet[at + length :]
    whole = f'<?xml version="1.0" encoding="UTF-8"?><worksheet xmlns="{MAIN}">{sheet}</worksheet>'
    styles = '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="22"/></cellXfs>'
    with tempfile.TemporaryDirectory() as folder, suppress(IntakeError):
        texts(bare(Path(folder) / "b.xlsx", whole, strings="<si><t>a</t></si>", styles=styles))


def test_a_zip_bomb_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = " " * 100_000_000
    path = bare(tmp_path / "b.xlsx", f"<row/>{bomb}")
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("it was read"))
    with pytest.raises(IntakeError, match="zip bomb"):
        texts(path)


def test_bounds_of_the_unpacked_size_and_of_one_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bare(tmp_path / "b.xlsx", "<row><c><v>1</v></c></row>")
    monkeypatch.setattr(package, "MAX_UNPACKED", 100)
    with pytest.raises(IntakeError, match="would unpack to"):
        texts(path)
    monkeypatch.undo()
    monkeypatch.setattr("api.sheets.xml.MAX_SILENCE", 200_000)
    long = bare(tmp_path / "c.xlsx", f'<row r="1" x="{"y" * 400_000}"/>')
    with pytest.raises(IntakeError, match="single tag"):
        texts(long)
    monkeypatch.setattr("api.sheets.reader.MAX_TEXT", 1000)
    with pytest.raises(IntakeError, match="row 1: more than 1,000 characters"):
        texts(bare(tmp_path / "d.xlsx", f'<row><c t="str"><v>{"y" * 2000}</v></c></row>'))


def test_damaged_and_foreign_zips(tmp_path: Path) -> None:
    whole = bare(tmp_path / "b.xlsx", "<row><c><v>1</v></c></row>").read_bytes()
    for name, content, said in [
        ("cut.xlsx", whole[:-40], "damaged"),
        ("flipped.xlsx", whole.replace(whole[60:70], b"0123456789", 1), "damaged|broken|no Excel"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(IntakeError, match=said):
            texts(tmp_path / name)
    for member, content, said in [
        ("word/document.xml", b"", "no Excel workbook"),
        ("mimetype", b"application/vnd.oasis.opendocument.spreadsheet", "OpenDocument"),
    ]:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr(member, content)
        (tmp_path / "o.xlsx").write_bytes(out.getvalue())
        with pytest.raises(IntakeError, match=said):
            texts(tmp_path / "o.xlsx")


def test_memory_does_not_grow_with_the_sheet(tmp_path: Path) -> None:
    """Nor with the list of shared strings, which is as long as the sheet."""
    peaks = []
    for count in (4_000, 16_000):
        strings = "".join(f"<si><t>How long does it take, the {n}th time?</t></si>" for n in range(count))
        sheet = "".join(f'<row><c t="s"><v>{n}</v></c></row>' for n in range(count))
        path = bare(tmp_path / "b.xlsx", sheet, strings=strings)
        tracemalloc.start()
        with open_workbook(path) as book:
            assert sum(1 for _ in book.rows(book.sheets[0])) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 500_000  # the sheet and its strings have 2 MB more
