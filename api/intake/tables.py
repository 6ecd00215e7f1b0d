"""CSV and its relatives: how the cells are separated, and the records, one at a time."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from api.intake.columns import is_question_word
from api.intake.lines import Lines
from shared.clean import MAX_TEXT
from shared.errors import IntakeError

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
# Stands for "no delimiter": a noncharacter, which no text contains.
NONE = "\uffff"
_END = "\ufffe"
_SEP_LINE = re.compile(r'"?sep=(.)"?\s*$')  # Excel's own hint, a line before the header

# The module's default of 131,072 is too small for a pasted document; the limit is one for the process.
csv.field_size_limit(max(csv.field_size_limit(), MAX_TEXT))


@dataclass(frozen=True, slots=True)
class Record:
    cells: list[str]
    line: int  # the 1-based line of the file on which it begins
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a sample of the file falls into cells."""

    delimiter: str | None
    skip: int  # lines before the header: blank ones and Excel's `sep=`
    header: list[str]
    records: list[list[str]]  # the sample's records after the header
    regular: float  # share of these with as many cells as the header


def records(lines: Lines, delimiter: str | None, path: Path, row: int = 0) -> Iterator[Record]:
    """The records of a table; `row` is the number of the first, 0 for a header.

    Raises IntakeError, naming row and line, for quotation marks that do not add up.

    The parser is strict, because the lenient one lets a stray quotation mark swallow the rows up to the
    next one without a word. A stray mark that stays within its line does no harm: it is kept, and noted.
    """
    reader = csv.reader(lines, delimiter=delimiter or NONE, strict=True)
    while True:
        first = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raw, notes = lines.take()
            cells = _mended(raw, delimiter, error, f"{path}: {_place(row, first)}")
            notes.append("stray quotation mark")
        else:
            _, notes = lines.take()
        yield Record(cells, first, notes)
        row += 1


def _place(row: int, line: int) -> str:
    return f"row {row} (line {line})" if row else f"the header (line {line})"


def _mended(raw: list[str], delimiter: str | None, error: csv.Error, place: str) -> list[str]:
    if "field larger" in str(error) or sum(map(len, raw)) > MAX_TEXT:
        raise IntakeError(
            f"{place}: a cell of more than {MAX_TEXT:,} characters. Perhaps a quotation mark is opened "
            "here and never closed; close it, or double it if it belongs to the text."
        )
    if len(raw) > 1 or not _closed(raw, delimiter):
        raise IntakeError(
            f"{place}: a quotation mark is opened here and not properly closed, so that it would swallow the "
            "rows after it. Close it, or double it if it belongs to the text."
        )
    if '\\"' in raw[0]:
        raise IntakeError(
            f'{place}: a quotation mark is written as \\". Write it doubled (""), or export the file '
            "again as standard CSV."
        )
    return next(csv.reader(raw, delimiter=delimiter or NONE))


def _closed(raw: list[str], delimiter: str | None) -> bool:
    """Whether the lines end outside of quotation marks: only then does what follows begin a record."""
    return [_END] in csv.reader([*raw[:-1], raw[-1].rstrip("\r\n") + "\n", _END], delimiter=delimiter or NONE)


def find_layout(sample: Sequence[str], complete: bool, prefer: str | None = None) -> Layout | None:
    """The delimiter whose use fits the header and the records after it best; None: nothing but blank lines.

    A delimiter has to occur in the header: a comma in a question is not the mark of a column.
    """
    skip, forced = 0, None
    if sample and (hint := _SEP_LINE.match(sample[0])):
        skip, forced = 1, hint[1]
    while skip < len(sample) and not sample[skip].strip():
        skip += 1
    rest = sample[skip:]
    if not rest:
        return None
    if forced:
        return _layout(rest, complete, forced, skip)
    single = _layout(rest, complete, None, skip)
    found = [
        layout for mark in DELIMITERS if (layout := _layout(rest, complete, mark, skip)) and _real(layout)
    ]
    if preferred := [layout for layout in found if layout.delimiter == prefer]:
        return preferred[0]
    return max(found, key=lambda layout: (round(layout.regular, 1), len(layout.header)), default=single)


def _layout(lines: Sequence[str], complete: bool, delimiter: str | None, skip: int) -> Layout | None:
    parsed: list[list[str]] = []
    reader = csv.reader(lines, delimiter=delimiter or NONE)
    with suppress(csv.Error):  # a huge cell: what was read until then has to do; `records` will name its row
        parsed.extend(reader)
    if not complete and len(parsed) > 1:
        parsed.pop()  # the sample may end within it
    if not parsed:
        return None
    header, data = parsed[0], [cells for cells in parsed[1:] if cells]
    widths = Counter(map(len, data))
    return Layout(delimiter, skip, header, data, widths[len(header)] / len(data) if data else 1.0)


def _real(layout: Layout) -> bool:
    """Whether the delimiter separates anything: it does in the header, and in a record or by a known name."""
    if len(layout.header) < 2:
        return False
    if not layout.records or any(map(is_question_word, layout.header)):
        return True
    return any(len(cells) > 1 for cells in layout.records)


def is_table(layout: Layout | None, wide: bool) -> bool:
    """Whether a .txt is evidently a table: a regular one, with a header that cannot be a question.

    `wide`: the file is UTF-16, as in Excel's "Unicode text", where tabs alone are evidence enough.
    """
    if layout is None or layout.delimiter is None or not layout.records or layout.regular < 0.9:
        return False
    if any(map(is_question_word, layout.header)):
        return True
    named = all(cell.strip() and len(cell) <= 60 and "?" not in cell for cell in layout.header)
    return wide and layout.delimiter == "\t" and named


def refuse_json(first: str, path: Path) -> None:
    """Raises IntakeError when `first`, the first line of a table or text, is JSON."""
    text = first.strip()
    if text[:1] not in ("{", "["):
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    if value:
        raise IntakeError(
            f"{path}: line 1 is JSON. Name the file .jsonl if each of its lines is a JSON object."
        )
