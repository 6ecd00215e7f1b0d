"""Results of a batch as a workbook: the rows as in CSV, links to the sources, and a summary.

XlsxWriter in its constant-memory mode keeps one row at a time; the sheets grow in temporary files.
"""

import re
from collections.abc import Iterable, Sequence
from typing import IO, Any
from urllib.parse import urlsplit

import xlsxwriter

from api.harmless import is_formula
from api.results import RESULT_COLUMNS, ResultRow, header_of, original_cells, sources_line
from shared.clean import free_name
from shared.errors import CraglineError

MAX_CELL = 32_767  # UTF-16 units, as Excel counts
MAX_ROWS = 1_048_576  # of a sheet, the header included
MAX_COLUMNS = 16_384
MAX_LINKS = 65_530  # of a sheet
MAX_URL = 2_079
LINKS = 3  # columns with a link to a source each; all sources stand in the column `sources`
CUT = " … [cut here: a cell holds no more; the whole text is in the CSV and JSON results]"
_ILLEGAL = re.compile("[\x00-\x08\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # in XML 1.0
_LINE_ENDS = re.compile("\r\n|[\r\v\f]")
_WIDEST, _NARROWEST, _MEASURED = 60, 9, 200  # characters of a column; rows that decide it


def write_xlsx(
    out: IO[bytes],
    columns: Sequence[str],
    rows: Iterable[ResultRow],
    *,
    width: int = 0,
    summary: Sequence[tuple[str, Any]] = (),
    rows_per_sheet: int = MAX_ROWS,
) -> int:
    """Writes a workbook to `out`, a seekable binary file, and returns the number of rows.

    `columns` and `width` are as for `write_csv`. `summary` holds (label, value) pairs for the last sheet; a
    pair with the value None is a heading. Rows beyond `rows_per_sheet`, the header included, go to further
    sheets. What a cell cannot hold is cut, and both the row's notes and the summary say so.
    Raises CraglineError for more columns than a sheet has.
    """
    header = header_of(columns, width)
    at = len(columns) + len(RESULT_COLUMNS)
    names = [free_name(f"link_{place}", header) for place in range(1, LINKS + 1)]
    header[at:at] = names
    if len(header) > MAX_COLUMNS:
        raise CraglineError(f"{len(header):,} columns are more than a sheet has. Write the results as .csv.")
    # Text stays text: nothing is guessed to be a formula, a number or a link.
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(out, options) as book:
        writer = _Writer(book, header, len(columns), rows_per_sheet)
        count = 0
        for row in rows:
            writer.row(row, columns)
            count += 1
        writer.finish()
        facts = [*summary, *([("rows with a cell that was cut", writer.cut)] if writer.cut else [])]
        if facts:
            _write_summary(book, writer, facts)
    return count


class _Writer:
    def __init__(self, book: Any, header: list[str], originals: int, rows_per_sheet: int) -> None:
        self._book, self._header, self._originals = book, header, originals
        self._per_sheet = rows_per_sheet
        top = {"valign": "top", "text_wrap": True}
        self.text = book.add_format(top)
        # The apostrophe that keeps a cell text when it is edited; it is no part of the text.
        self.quoted = book.add_format(top | {"quote_prefix": True})
        self.bold = book.add_format(top | {"bold": True, "bottom": 1})
        self._link = book.add_format(top | {"font_color": "#0563C1", "underline": 1})
        self._sheets = 0
        self._links = 0
        self.cut = 0
        self._begin()

    def _begin(self) -> None:
        self._sheets += 1
        self._sheet = self._book.add_worksheet("Results" if self._sheets == 1 else f"Results {self._sheets}")
        self._sheet.freeze_panes(1, 0)
        self._sheet.ignore_errors({"number_stored_as_text": "A1:XFD1048576"})
        self._widths = [_NARROWEST] * len(self._header)
        for column, name in enumerate(self._header):
            self._string(0, column, name, self.bold)
        self._next, self._links = 1, 0

    def finish(self) -> None:
        """Ends the current sheet."""
        for column, width in enumerate(self._widths):
            self._sheet.set_column(column, column, width + 2)
        self._sheet.autofilter(0, 0, max(self._next - 1, 1), len(self._header) - 1)

    def row(self, row: ResultRow, columns: Sequence[str]) -> None:
        if self._next == self._per_sheet:
            self.finish()
            self._begin()
        number, at = self._next, self._originals
        cells, extra = original_cells(row.original, columns)
        cut = [self._string(number, place, cell) for place, cell in enumerate(cells)]
        texts = (row.answer, row.disposition, row.reason, sources_line(row.sources))
        cut += [self._string(number, at + place, text or "") for place, text in enumerate(texts)]
        if row.web_used is not None:
            self._sheet.write_boolean(number, at + 4, row.web_used, self.text)
        cut.append(self._string(number, at + 5, row.error or ""))
        if row.run_id is not None:
            self._sheet.write_number(number, at + 6, row.run_id, self.text)
        notes = list(row.notes)
        if any(cut):
            self.cut += 1
            notes.append("a text was cut to what a cell holds")
        self._string(number, at + 7, "; ".join(notes))
        self._write_links(number, at + 8, row)
        for place, cell in enumerate(extra, start=at + 8 + LINKS):
            self._string(number, place, cell)
        self._next += 1

    def _string(self, row: int, column: int, text: str, form: Any = None) -> bool:
        """Writes a text; returns whether it had to be cut."""
        if not text or column >= MAX_COLUMNS:
            return False
        shown, cut = fitted(text)
        self._sheet.write_string(
            row, column, shown, form or (self.quoted if is_formula(shown) else self.text)
        )
        if row < _MEASURED and column < len(self._widths):
            longest = max(map(len, shown.split("\n", 20)))
            self._widths[column] = max(self._widths[column], min(longest, _WIDEST))
        return cut

    def _write_links(self, row: int, column: int, result: ResultRow) -> None:
        urls = [url for source in result.sources or [] if (url := web_address(source.get("source")))]
        for place, url in enumerate(urls[:LINKS]):
            if len(url) > MAX_URL or self._links >= MAX_LINKS:
                self._string(row, column + place, url)
                continue
            self._sheet.write_url(row, column + place, url, self._link, url)
            self._links += 1


def fitted(text: str) -> tuple[str, bool]:
    """`text` as a cell can hold it, and whether it had to be cut for that."""
    text = _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", _LINE_ENDS.sub("\n", text))
    if len(text) * 2 <= MAX_CELL or _units(text) <= MAX_CELL:
        return text, False
    kept = text.encode("utf-16-le")[: 2 * (MAX_CELL - len(CUT))]
    return kept.decode("utf-16-le", "ignore") + CUT, True  # "ignore": half of an emoji


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def web_address(source: Any) -> str | None:
    """`source` when it is an address of the web; nothing else is made a link."""
    if not isinstance(source, str) or re.search(r"[\s\x00-\x1f\"<>]", source):
        return None
    try:
        parts = urlsplit(source)
        return source if parts.scheme in ("http", "https") and parts.hostname else None
    except ValueError:
        return None


def _write_summary(book: Any, writer: _Writer, facts: Sequence[tuple[str, Any]]) -> None:
    sheet = book.add_worksheet("Summary")
    sheet.set_column(0, 0, 30)
    sheet.set_column(1, 1, 80)
    for row, (label, value) in enumerate(facts):
        if value is None:
            sheet.write_string(row, 0, label, writer.bold)
            continue
        sheet.write_string(row, 0, fitted(label)[0], writer.text)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            text = fitted(str(value))[0]
            sheet.write_string(row, 1, text, writer.quoted if is_formula(text) else writer.text)
        else:
            sheet.write_number(row, 1, value, writer.text)
