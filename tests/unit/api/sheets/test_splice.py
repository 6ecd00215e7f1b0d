"""Cells written into the bytes of a sheet: there they are, and every other byte is what it was."""

import io
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.sheets import xml
from api.sheets.reader import open_workbook
from api.sheets.splice import Splicer, Value
from api.sheets.values import letters
from tests.unit.api.workbooks import MAIN, bare

HEAD = f'<?xml version="1.0" encoding="UTF-8"?>\n<worksheet xmlns="{MAIN}">'


def spliced(
    sheet: str | bytes,
    cells: Mapping[int, Mapping[int, Value]],
    *,
    like: int = 1,
    widths: Mapping[int, int] = {},
) -> str:
    out = io.BytesIO()
    content = sheet.encode() if isinstance(sheet, str) else sheet
    splicer = Splicer(out, lambda row: cells.get(row, {}), like=like, widths=widths, place="b.xlsx")
    for _ in splicer.run(io.BytesIO(content)):
        pass
    return out.getvalue().decode()


def test_cells_go_to_their_place_with_the_looks_of_the_question() -> None:
    rows = '<row r="1" spans="1:4" ht="20"><c r="A1" s="7"><v>1</v></c><c r="D1" t="s"><v>0</v></c></row>'
    sheet = f'{HEAD}<dimension ref="A1:D1"/><sheetData>{rows}</sheetData><extLst><ext uri="x>y"/></extLst></worksheet>'
    assert spliced(sheet, {1: {2: "a<b & _x0041_", 5: 42}}, widths={2: 60}) == (
        f'{HEAD}<dimension ref="A1:D1"/><cols><col min="2" max="2" width="60" customWidth="1"/></cols>'
        '<sheetData><row r="1" spans="1:5" ht="20"><c r="A1" s="7"><v>1</v></c>'
        '<c r="B1" s="7" t="inlineStr"><is><t xml:space="preserve">a&lt;b &amp; _x005F_x0041_</t></is></c>'
        '<c r="D1" t="s"><v>0</v></c><c r="E1" s="7"><v>42</v></c></row></sheetData>'
        '<extLst><ext uri="x>y"/></extLst></worksheet>'
    )


def test_an_empty_cell_that_stands_there_keeps_its_looks() -> None:
    cells = '<c r="A2"/><c r="B2" s="9" cm="a>b"/><c r="C2" s="3"></c>'
    sheet = f'{HEAD}<sheetData><row r="2">{cells}</row></sheetData></worksheet>'
    assert '<c r="A2"/><c r="B2" s="9" t="inlineStr"' in spliced(sheet, {2: {2: "x"}})
    assert '<c r="B2" s="9" cm="a>b"/><c r="C2" s="3"><v>5</v></c></row>' in spliced(sheet, {2: {3: 5}})


def test_rows_without_cells_and_prefixes_and_counted_references() -> None:
    sheet = (
        f'<x:worksheet xmlns:x="{MAIN}"><x:sheetData><x:row/><x:row customHeight="1" /><x:row>\n'
        "<x:c><x:v>1</x:v></x:c>\n</x:row></x:sheetData></x:worksheet>"
    )
    assert spliced(sheet, {2: {2: "y"}, 3: {1: 0, 3: "z"}}, widths={3: 9}) == (
        f'<x:worksheet xmlns:x="{MAIN}"><x:cols><x:col min="3" max="3" width="9" customWidth="1"/></x:cols>'
        '<x:sheetData><x:row/><x:row customHeight="1"><x:c r="B2" t="inlineStr"><x:is>'
        '<x:t xml:space="preserve">y</x:t></x:is></x:c></x:row><x:row>\n<x:c r="A3"><x:v>0</x:v></x:c>'
        '<x:c r="C3" t="inlineStr"><x:is><x:t xml:space="preserve">z</x:t></x:is></x:c>\n</x:row>'
        "</x:sheetData></x:worksheet>"
    )


@pytest.mark.parametrize(
    ("cols", "expected"),
    [
        ('<col min="1" max="2" style="3"/>', '<col min="1" max="2" style="3"/>NEW'),
        (
            '<col min="2" max="16384" hidden="1"/>',
            '<col min="2" max="3" hidden="1"/>NEW<col min="6" max="16384" hidden="1"/>',
        ),
        ('<col min="4" max="4"></col><col min="9" max="9"/>', 'NEW<col min="9" max="9"/>'),
    ],
)
def test_columns_are_split_around_the_new_ones(cols: str, expected: str) -> None:
    new = "".join(f'<col min="{column}" max="{column}" width="8" customWidth="1"/>' for column in (4, 5))
    sheet = f'{HEAD}<cols>{cols}</cols><sheetData><row r="1"/></sheetData></worksheet>'
    found = spliced(sheet, {}, widths={4: 8, 5: 8})
    assert found == sheet.replace(cols, expected.replace("NEW", new))


def test_the_dimension_grows_and_nothing_changes_without_cells() -> None:
    sheet = f'{HEAD}<dimension ref="B2:C9"/><sheetData><row r="1"/></sheetData></worksheet>'
    assert '<dimension ref="B2:E9"/>' in spliced(sheet, {}, widths={5: 8})
    assert spliced(sheet, {}) == sheet
    assert spliced(b"\xef\xbb\xbf" + sheet.encode(), {1: {1: 1}}).startswith("\ufeff<?xml")


# Sheets as different programs write them: each row with a list of columns, styled or not, spaced or not.
_ROWS = st.dictionaries(
    st.integers(1, 30), st.dictionaries(st.integers(1, 12), st.booleans(), max_size=6), max_size=6
)
_NEW = st.dictionaries(
    st.integers(1, 30), st.dictionaries(st.integers(4, 9), st.text("a<&>\"'é😀 \n", min_size=1), max_size=3)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_ROWS, _NEW, st.sampled_from(["", "\n "]), st.integers(3, 200))
def test_what_is_written_is_there_and_the_rest_is_as_it_was(
    rows: dict[int, dict[int, bool]], new: dict[int, dict[int, str]], gap: str, chunk: int
) -> None:
    def cell(row: int, column: int, filled: bool) -> str:
        place = f'r="{letters(column)}{row}"'
        return f"<c {place}><v>{column}</v></c>" if filled else f'<c {place} s="2"/>'

    lines = [
        f'<row r="{row}">{gap}'
        + gap.join(cell(row, *pair) for pair in sorted(cells.items()))
        + f"{gap}</row>"
        for row, cells in sorted(rows.items())
    ]
    sheet = f"{HEAD}<sheetData>{gap.join(lines)}</sheetData></worksheet>"
    # Only into rows that are there, and only where nothing stands: that is how it is used.
    asked = {
        row: {column: text for column, text in cells.items() if not rows[row].get(column)}
        for row, cells in new.items()
        if row in rows
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xml, "CHUNK", chunk)
        result = spliced(sheet, asked)
    with tempfile.TemporaryDirectory() as folder:
        path = bare(Path(folder) / "b.xlsx", result)
        with open_workbook(path) as book:
            found = {
                row.number: {column: cell.text for column, cell in row.cells.items()}
                for row in book.rows(book.sheets[0])
            }
    expected = {
        row: {column: str(column) for column, filled in cells.items() if filled} | asked.get(row, {})
        for row, cells in rows.items()
    }
    assert found == {row: cells for row, cells in expected.items() if cells}
    empty = re.compile(r'<c [^>]*s="2"/>')
    ours = re.compile(r'<c [^>]*t="inlineStr">.*?</c>', re.DOTALL)
    assert ours.sub("", result) == empty.sub(
        lambda match: "" if _replaced(match[0], asked) else match[0], sheet
    )


def _replaced(tag: str, asked: Mapping[int, Mapping[int, str]]) -> bool:
    match = re.search(r'r="([A-Z]+)(\d+)"', tag)
    assert match is not None
    return match[1] in map(letters, asked.get(int(match[2]), {}))
