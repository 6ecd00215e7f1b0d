"""Where the header of a sheet is, and how much its names say: the evidence by which a sheet is chosen."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from api.intake.columns import evidence, looks_like_question
from api.sheets.package import SheetPart
from api.sheets.reader import Facts, SheetRow, Workbook

HEADER_ROWS = 30  # rows with something in them among which the header is looked for
_FOLLOWING = 20  # rows after a header that show what it stands over
_SAMPLE, _SAMPLE_CHARS = HEADER_ROWS + _FOLLOWING, 4 * 2**20
_LONGEST_NAME = 60  # characters of a name that may say what its column holds
_LONGEST_LABEL = 200  # of any cell of a header
_FILLED = 0.6  # of the cells of the rows below that a header has at least


@dataclass(slots=True)
class Survey:
    """One sheet, read to its end."""

    part: SheetPart
    sample: list[SheetRow] = field(default_factory=list)  # the first rows
    facts: Facts = field(default_factory=Facts)
    filled: "Counter[int]" = field(default_factory=Counter)  # by column: cells with text
    characters: "Counter[int]" = field(default_factory=Counter)  # by column
    last_row: int = 0
    hidden_rows: int = 0
    errors: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    top: int  # sheet rows
    bottom: int
    first: int  # 1-based sheet column of the first name
    names: list[str]  # "" for a column without one
    tier: int | None  # the best evidence among the names; -1: the wanted name is there

    @property
    def last(self) -> int:
        return self.first + len(self.names) - 1


def survey(workbook: Workbook, part: SheetPart) -> Survey:
    found = Survey(part)
    size = 0
    for row in workbook.rows(part, found.facts):
        if len(found.sample) < _SAMPLE and size < _SAMPLE_CHARS:
            found.sample.append(row)
            size += sum(len(cell.text) for cell in row.cells.values())
        found.last_row = row.number
        found.hidden_rows += row.hidden
        for column, cell in row.cells.items():
            found.filled[column] += 1
            found.characters[column] += len(cell.text)
            found.errors += cell.error
            found.lost += cell.lost
    return found


def find_header(sheet: Survey, wanted: str | None) -> Header | None:
    """The header that the names, or the wanted column, speak for; else the first row that could be one.

    None: there is no table in the sheet.
    """
    fitting = list(_fitting(sheet))
    if wanted is not None:
        folded = wanted.strip().casefold()
        for header in fitting:
            if any(name.strip().casefold() == folded for name in header.names):
                return Header(header.top, header.bottom, header.first, header.names, tier=-1)
    best: Header | None = None
    widest = 0
    for header in fitting:
        # A title stands above its header and has fewer cells; a row of data below it has not more.
        wider, widest = _width(header) > widest, max(widest, _width(header))
        if wider and header.tier is not None and (best is None or header.tier < (best.tier or 0)):
            best = header
    return best or next(iter(fitting), None)


def _width(header: Header) -> int:
    return sum(map(bool, header.names))


def _fitting(sheet: Survey) -> Iterator[Header]:
    """The rows that could be a header: about as many cells as the rows below, none of them long."""
    for place, row in enumerate(sheet.sample[:HEADER_ROWS]):
        following = sheet.sample[place + 1 : place + 1 + _FOLLOWING]
        labels = [cell for cell in row.cells.values() if cell.text.strip()]
        if not following or not labels or len(labels) < _FILLED * median(len(row.cells) for row in following):
            continue
        if any(cell.error or len(cell.text) > _LONGEST_LABEL for cell in labels):
            continue
        yield header_at(sheet, row.number)


def header_at(sheet: Survey, number: int) -> Header:
    """The header in sheet row `number`, with the rows below that belong to it by cells merged downwards."""
    rows = {row.number: row for row in sheet.sample}
    cells = rows[number].cells if number in rows else {}
    down = [last for top, left, last, _ in sheet.facts.merges if top == number and left in cells]
    bottom = min(max([number, *down]), number + 2)
    names: dict[int, str] = {}
    for line in range(number, bottom + 1):
        for column, cell in rows[line].cells.items() if line in rows else ():
            if cell.text.strip():
                names[column] = cell.text.strip()
    above = Counter(column for row in sheet.sample if row.number <= bottom for column in row.cells)
    below = sheet.filled - above
    used = [column for column in below if column < min(names, default=1)]
    first = min([*names, *used], default=1)
    last = max([*names, first])
    tiers = [tier for column, name in names.items() if below[column] and (tier := _tier(name)) is not None]
    listed = [names.get(column, "") for column in range(first, last + 1)]
    return Header(number, bottom, first, listed, min(tiers, default=None))


def _tier(name: str) -> int | None:
    if len(name) > _LONGEST_NAME or name.endswith((".", "!")) or looks_like_question(name):
        return None
    return evidence(name)


def is_list(sheet: Survey) -> bool:
    """Whether the sheet is a single column of questions without a name over it."""
    rows = sheet.sample
    return len(sheet.filled) == 1 and all(
        looks_like_question(cell.text) for row in rows[:1] for cell in row.cells.values()
    )
