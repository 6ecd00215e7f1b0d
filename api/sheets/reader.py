"""The rows of a worksheet, one at a time, and what else there is to say of it."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from api.sheets.package import Package, SheetPart, open_package, zip_errors
from api.sheets.strings import Strings, number_formats, open_strings
from api.sheets.values import MAX_COLUMNS, MAX_ROWS, Shown, area, natural, number_text, position, unescape
from api.sheets.xml import Target, feed
from shared.clean import MAX_TEXT
from shared.errors import IntakeError

_KEPT = 100_000  # merges that are remembered; beyond, a sheet is no table any more
_COLUMN_TAGS = 1_000  # of hidden columns, each of which may name all of them


class Cell(NamedTuple):
    """A cell with something in it."""

    text: str
    error: bool  # the text is an error value, such as #REF!
    lost: bool  # a formula whose value the file does not hold


class SheetRow(NamedTuple):
    number: int  # as the spreadsheet program counts, from 1
    hidden: bool
    cells: dict[int, Cell]  # by 1-based column; what has no text is not there, except `lost` ones


@dataclass(slots=True)
class Facts:
    """What a sheet says beside its cells; complete once its rows have been read to the end."""

    hidden_columns: set[int] = field(default_factory=set)
    merges: list[tuple[int, int, int, int]] = field(default_factory=list)  # as `values.area` has them
    links: int = 0
    formulas: int = 0


class Workbook:
    """An open workbook: `rows` reads one of its sheets."""

    def __init__(self, package: Package, strings: Strings, styles: list[Shown]) -> None:
        self.package = package
        self._strings = strings
        self._styles = styles

    @property
    def sheets(self) -> list[SheetPart]:
        return self.package.sheets

    def rows(self, sheet: SheetPart, facts: Facts | None = None) -> Iterator[SheetRow]:
        """The rows that hold something, in order. Fills `facts`."""
        place = f"{self.package.path}: sheet {sheet.name!r}"
        target = _Sheet(self._strings, self._styles, self.package.date_1904, place, facts or Facts())
        with zip_errors(self.package.path), self.package.archive.open(sheet.member) as stream:
            for _ in feed(stream, target, place):
                while target.ready:
                    yield target.ready.popleft()


@contextmanager
def open_workbook(path: Path) -> Iterator[Workbook]:
    """The workbook at `path`. Raises IntakeError when it is none, or not one that can be read."""
    with open_package(path) as package, open_strings(package) as strings:
        yield Workbook(package, strings, number_formats(package))


class _Sheet(Target):
    def __init__(
        self, strings: Strings, styles: list[Shown], date_1904: bool, place: str, facts: Facts
    ) -> None:
        self._strings, self._styles, self._date_1904 = strings, styles, date_1904
        self._place, self._facts = place, facts
        self.ready: deque[SheetRow] = deque()
        self._row = self._column = 0
        self._hidden = False
        self._digits = ""
        self._column_tags = 0
        self._columns: dict[str, int] = {}  # by their letters
        self._cells: dict[int, Cell] = {}
        self._kind, self._style = "n", 0
        self._parts: list[str] = []
        self._size = 0
        self._reading = self._phonetic = self._formula = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "c":
            self._start_cell(attributes)
        elif name == "v" or (name == "t" and not self._phonetic):
            self._reading = self._column > 0
        elif name == "f":
            self._formula = True
        elif name == "row":
            self._start_row(attributes)
        elif name == "rPh":
            self._phonetic = True
        else:
            self._note(name, attributes)

    def end(self, name: str) -> None:
        if name == "c":
            self._end_cell()
        elif name in ("v", "t"):
            self._reading = False
        elif name == "row":
            if self._cells:
                self.ready.append(SheetRow(self._row, self._hidden, self._cells))
            self._cells = {}
        elif name == "rPh":
            self._phonetic = False

    def text(self, data: str) -> None:
        if self._reading:
            self._parts.append(data)
            self._size += len(data)
            if self._size > MAX_TEXT:
                raise IntakeError(f"{self._place}, row {self._row}: more than {MAX_TEXT:,} characters.")

    def _start_row(self, attributes: dict[str, str]) -> None:
        # Some programs leave out what can be counted.
        following = natural(attributes["r"]) or 0 if "r" in attributes else self._row + 1
        if not self._row < following <= MAX_ROWS:
            raise IntakeError(
                f"{self._place}: row {following} after row {self._row}. Open the workbook and save it again."
            )
        self._row, self._column = following, 0
        self._digits = str(following)
        self._hidden = attributes.get("hidden") in ("1", "true")

    def _start_cell(self, attributes: dict[str, str]) -> None:
        reference = attributes.get("r")
        if reference is None and self._column < MAX_COLUMNS:
            self._column += 1
        else:
            reference = reference or ""
            self._column = self._columns.get(reference.removesuffix(self._digits)) or self._look_up(reference)
        self._kind = attributes.get("t", "n")
        self._style = natural(attributes.get("s")) or 0
        self._parts, self._size, self._formula = [], 0, False

    def _look_up(self, reference: str) -> int:
        """The column of a reference to this row; it is remembered, because each row has it again."""
        found = position(reference)
        if found is None or found[0] != self._row:
            raise IntakeError(
                f"{self._place}, row {self._row}: a cell that names another place. "
                "Open the workbook and save it again."
            )
        self._columns[reference.rstrip("0123456789")] = found[1]
        return found[1]

    def _end_cell(self) -> None:
        raw = "".join(self._parts)
        if self._formula:
            self._facts.formulas += 1
        text = self._text(raw) if raw else ""
        if text or (self._formula and self._kind != "str"):
            self._cells[self._column] = Cell(text, self._kind == "e", not raw and self._formula)

    def _text(self, raw: str) -> str:
        match self._kind:
            case "s":
                index = natural(raw.strip())
                if index is None or index >= len(self._strings):
                    raise IntakeError(
                        f"{self._place}, row {self._row}: a text that is not in the workbook. It is damaged."
                    )
                return self._strings[index]
            case "str" | "inlineStr" | "e":
                return unescape(raw)
            case "b":
                return "TRUE" if raw.strip() in ("1", "true") else "FALSE"
            case "d":
                return raw.removesuffix("T00:00:00").replace("T", " ")
            case _:
                shown = self._styles[self._style] if self._style < len(self._styles) else Shown.NUMBER
                return number_text(raw.strip(), shown, self._date_1904)

    def _note(self, name: str, attributes: dict[str, str]) -> None:
        if name == "col" and attributes.get("hidden") in ("1", "true"):
            first, last = natural(attributes.get("min")), natural(attributes.get("max"))
            self._column_tags += 1
            if first and last and self._column_tags < _COLUMN_TAGS:
                self._facts.hidden_columns.update(range(first, min(last, MAX_COLUMNS) + 1))
        elif name == "mergeCell" and len(self._facts.merges) < _KEPT:
            if found := area(attributes.get("ref", "")):
                self._facts.merges.append(found)
        elif name == "hyperlink":
            self._facts.links += 1
