"""Answers into a copy of the user's own workbook, beside the questions; nothing else in it changes.

All members of the zip but one sheet are copied as they are, and that sheet gets cells spliced into its
bytes. A row is found by its number in the sheet, as it was counted when the file was read.
"""

import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from api.intake.model import IntakeReport
from api.intake.workbook import input_row, sha256
from api.results import ResultRow, sources_line
from api.results_xlsx import fitted
from api.sheets.package import Package, SheetPart, zip_errors
from api.sheets.reader import Facts, SheetRow, Workbook, open_workbook
from api.sheets.splice import Splicer, Value
from api.sheets.values import MAX_COLUMNS, letters
from shared.clean import one_line
from shared.errors import CraglineError, UsageError

# Our columns with their widths in characters.
FILLED = {"answer": 60, "disposition": 12, "reason": 30, "sources": 40, "run_id": 8}


@dataclass(frozen=True, slots=True)
class Filled:
    rows: int  # that got an outcome
    first: str  # the letter of the first of our columns
    last: str
    notes: list[str]  # sentences for a person


def fill(out: IO[bytes], original: Path, source: Mapping[str, Any], rows: Iterable[ResultRow]) -> Filled:
    """Writes the workbook `original` to `out` with the results beside its questions.

    `source` is the batch's report of its file. A file that was saved again since is taken when each row
    still holds what was submitted. Raises UsageError when the batch is not of a workbook, CraglineError,
    naming the row, when `original` is not the file that was submitted, IntakeError when it cannot be read.
    """
    report = _report(source)
    notes: list[str] = []
    with open_workbook(original) as workbook:
        part = _sheet(original, workbook, report)
        if sha256(original) != report.sha256:
            notes.append(
                "The workbook was saved again since it was submitted; each row still holds the same."
            )
        first = _free_columns(original, workbook, part, report)
        columns = dict(zip(FILLED, range(first, first + len(FILLED)), strict=True))
        writer = _Rows(original, report, columns, workbook.rows(part), rows)
        widths = {columns[name]: width for name, width in FILLED.items()}
        like = (report.first_column or 1) + report.columns.index(report.question_column)
        place = f"{original}: {part.member}"
        with zip_errors(original), zipfile.ZipFile(out, "w", allowZip64=True) as target:
            for info in workbook.package.archive.infolist():
                with workbook.package.archive.open(info) as stream, target.open(_same(info), "w") as copy:
                    if info.filename == part.member:
                        splicer = Splicer(copy, writer.cells, like=like, widths=widths, place=place)
                        for _ in splicer.run(stream):
                            pass
                    else:
                        shutil.copyfileobj(stream, copy, 2**20)
            target.comment = workbook.package.archive.comment
        writer.finish()
    notes += writer.notes() + _warnings(workbook.package)
    return Filled(writer.written, letters(first), letters(first + len(FILLED) - 1), notes)


def _report(source: Mapping[str, Any]) -> IntakeReport:
    if source.get("format") != "xlsx":
        raise UsageError(
            f"The batch was submitted from a file of the format {source.get('format', 'unknown')}; only a "
            "workbook can be filled in. Leave out --into."
        )
    known = IntakeReport.__dataclass_fields__
    return IntakeReport(**{key: value for key, value in source.items() if key in known})


def _sheet(original: Path, workbook: Workbook, report: IntakeReport) -> SheetPart:
    for part in workbook.sheets:
        if part.name == report.sheet:
            return part
    raise CraglineError(
        f'{original}: there is no sheet "{report.sheet}", from which the batch was submitted.'
    )


def _same(info: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """The directory entry of a copy: name, time, attributes and compression stay."""
    copy = zipfile.ZipInfo(info.filename, info.date_time)
    copy.compress_type = info.compress_type
    copy.external_attr, copy.create_system, copy.comment = (
        info.external_attr,
        info.create_system,
        info.comment,
    )
    copy.file_size = info.file_size  # by which zipfile decides on the large format
    return copy


def _free_columns(original: Path, workbook: Workbook, part: SheetPart, report: IntakeReport) -> int:
    """The first of as many columns as we need, right of the table, in which nothing stands and nothing is
    merged."""
    facts = Facts()
    used: set[int] = set()
    for row in workbook.rows(part, facts):
        used.update(row.cells)
    for _, left, _, right in facts.merges:
        if right - left < MAX_COLUMNS // 2:  # a title over everything is in nobody's way
            used.update(range(left, right + 1))
    column = (report.first_column or 1) + len(report.columns)
    while column + len(FILLED) - 1 <= MAX_COLUMNS:
        taken = [place for place in range(column, column + len(FILLED)) if place in used]
        if not taken:
            return column
        column = max(taken) + 1
    raise CraglineError(f'{original}, sheet "{part.name}": there is no room for {len(FILLED)} columns.')


class _Rows:
    """Joins the sheet's rows with the results: both come in the order of the sheet."""

    def __init__(
        self,
        original: Path,
        report: IntakeReport,
        columns: Mapping[str, int],
        sheet: Iterator[SheetRow],
        rows: Iterable[ResultRow],
    ) -> None:
        self._original, self._report, self._columns = original, report, columns
        self._sheet, self._results = sheet, iter(rows)
        self._row = next(self._sheet, None)
        self._result = next(self._results, None)
        self.written = 0
        self._cut = 0
        self._above: set[str] = set()  # the texts down to the header

    def cells(self, number: int) -> dict[int, Value]:
        """What is written into row `number` of the sheet. Raises CraglineError when it is not as submitted."""
        row: SheetRow | None = None
        if self._row is not None and self._row.number == number:
            row, self._row = self._row, next(self._sheet, None)
        header = self._report.header_row or 0
        if row is not None and number <= header:
            self._above.update(cell.text.strip() for cell in row.cells.values())
        if number == header:
            self._check_header()
            return dict(zip(self._columns.values(), self._columns, strict=True))
        if row is None or number < header or not any(cell.text for cell in row.cells.values()):
            return {}
        result, self._result = self._result, next(self._results, None)
        self._check(row, result)
        assert result is not None
        self.written += 1
        return self._outcome(result)

    def finish(self) -> None:
        """Raises CraglineError when rows of the batch were not met."""
        if self._result is not None:
            raise self._differs((self._report.header_row or 0) + self._result.number, "is not there any more")

    def notes(self) -> list[str]:
        return (
            [f"{self._cut} {'text was' if self._cut == 1 else 'texts were'} cut to what a cell holds."]
            if self._cut
            else []
        )

    def _outcome(self, result: ResultRow) -> dict[int, Value]:
        texts = {
            "answer": result.answer,
            "disposition": result.disposition,
            "reason": result.reason or result.error,
            "sources": sources_line(result.sources),
        }
        written: dict[int, Value] = {}
        for name, text in texts.items():
            if text:
                written[self._columns[name]], cut = fitted(text)
                self._cut += cut
        if result.run_id is not None:
            written[self._columns["run_id"]] = result.run_id
        return written

    def _check_header(self) -> None:
        names = [name for name in self._report.header if name]
        if names and names != ["question"] and not self._above.intersection(names):
            raise self._differs(self._report.header_row or 0, f'holds no header such as "{names[0]}"')

    def _check(self, row: SheetRow, result: ResultRow | None) -> None:
        number = row.number - (self._report.header_row or 0)
        if result is None or number < result.number:
            raise self._differs(row.number, "is new")
        if number > result.number:
            raise self._differs(result.number + (self._report.header_row or 0), "is not there any more")
        now = input_row(row, self._report).original
        for name, before, after in zip(self._report.columns, result.original, now, strict=False):
            if before != after:
                what = f'holds "{one_line(after, 60)}" under "{name}", and held "{one_line(before, 60)}"'
                raise self._differs(row.number, what)
        if now != result.original:
            raise self._differs(row.number, "has other cells beyond the header")

    def _differs(self, number: int, what: str) -> CraglineError:
        return CraglineError(
            f'{self._original}, sheet "{self._report.sheet}": row {number} {what}. This is not the workbook as it '
            "was submitted; give that one, or submit this one."
        )


def _warnings(package: Package) -> list[str]:
    if any(name.startswith("_xmlsignatures/") for name in package.archive.namelist()):
        return ["The workbook was signed; the signature does not hold for the copy."]
    return []
