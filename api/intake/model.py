"""What the readers hand over: one report for the file, one record for each row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from shared.errors import IntakeError

Format = Literal["csv", "jsonl", "txt", "xlsx", "json", "zip"]
# The rows of these are objects with keys of their own, in the others cells under one header.
OBJECT_FORMATS: tuple[Format, ...] = ("jsonl", "json", "zip")


@dataclass(frozen=True, slots=True)
class InputRow:
    """One data row. Every string in it is clean: no NUL, no lone surrogate."""

    number: int  # 1-based among the data rows; of a sheet: rows below the header, so there may be gaps
    question: str | None  # outer white space stripped; None: there is no text in the cell
    original: list[str] | dict[str, Any]  # the cells in column order, or the JSONL object
    notes: list[str]  # what was mended or odd, as short phrases


@dataclass(slots=True)
class IntakeReport:
    """How the file was understood. All values are JSON values (`dataclasses.asdict`)."""

    file: str
    format: Format  # a .txt that holds a table is reported as csv
    encoding: str  # "utf-8", "utf-8-sig", "utf-16-le", "cp1252" ...
    delimiter: str | None  # None: a single column, lines or JSON
    header: list[str]  # the header as it stands in the file, duplicates included; JSONL: as `columns`
    columns: list[str]  # unique names; JSONL: the keys of the first object only
    question_column: str  # one of `columns`
    column_guessed: bool
    notes: list[str] = field(default_factory=list)  # sentences for a person
    # Of a spreadsheet, by which its rows are found again: row `number` stands in sheet row header_row + number.
    sheet: str | None = None
    header_row: int | None = (
        None  # the last row of the header; 0 or the row before the first when there is none
    )
    first_column: int | None = None  # 1-based; the sheet column of the first of `columns`
    sha256: str | None = None  # of the file


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """A file of questions that was found readable. `rows()` reads it again from the start at each call."""

    path: Path
    report: IntakeReport
    _rows: Callable[[], Iterator[InputRow]]
    _stamp: tuple[int, int]  # size and mtime_ns when the file was looked at

    def rows(self) -> Iterator[InputRow]:
        """The data rows in file order, one at a time.

        Raises IntakeError for a row that cannot be read, or when the file changed since it was opened:
        the encoding was decided for the earlier content, so the rows could be half wrong.
        """
        try:
            yield from self._rows()
            changed = stamp(self.path) != self._stamp
        except (OSError, UnicodeError) as error:
            raise IntakeError(
                f"{self.path}: cannot be read to its end ({error}). Submit it again."
            ) from error
        if changed:
            raise IntakeError(f"{self.path}: the file changed while it was read. Submit it again.")


def stamp(path: Path) -> tuple[int, int]:
    """What changes when a file is written to: its size in bytes and its modification time in ns."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns
