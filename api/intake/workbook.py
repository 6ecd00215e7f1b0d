"""Spreadsheets: which sheet holds the questions, under which header, and its rows.

What is decided: a sheet is chosen by the names in its header, and when two could be meant, it is asked.
Hidden rows are taken and noted, hidden sheets are passed over unless they are named. Rows of a sheet in
which no cell has text are no rows, for a formatted sheet has a thousand of them; the numbers of the others
still count from the header, as the spreadsheet does.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from api.intake.columns import Choice, choose, normal, unique_names, words
from api.intake.headers import Header, Survey, find_header, header_at, is_list, survey
from api.intake.lines import as_question
from api.intake.model import InputRow, IntakeReport
from api.sheets.package import SheetPart
from api.sheets.reader import SheetRow, open_workbook
from api.sheets.values import joined
from shared.errors import IntakeError, UsageError

# Words in the names of sheets beside the questions.
_ASIDE = words(
    """
    instruction instructions readme guidance guide cover intro introduction about note notes help legend
    list lists lookup lookups values glossary changelog version history anleitung hinweise deckblatt
    instrucciones istruzioni instructies toelichting consignes
    """
)
_RIVAL = 10  # a sheet with a tenth of the best one's rows may be meant as well
_NAMED = 30  # sheets in an error
Bands = dict[int, int]  # sheet row -> first column of a merged cell over the whole table


def open_workbook_file(
    path: Path, column: str | None, sheet: str | None, header_row: int | None
) -> tuple[IntakeReport, Bands]:
    """Chooses sheet, header and question column; `sheet` is a name or a 1-based number, `header_row` the
    sheet row of the header, 0 for none. Raises IntakeError or UsageError."""
    with open_workbook(path) as workbook:
        asked = [_wanted(path, workbook.sheets, sheet)] if sheet is not None else workbook.sheets
        passed = [part for part in workbook.sheets if part not in asked]
        if sheet is None and any(not part.hidden for part in asked):
            asked, hidden = (
                [part for part in asked if not part.hidden],
                [part for part in asked if part.hidden],
            )
            passed += hidden
        surveys = [survey(workbook, part) for part in asked]
    chosen, header = _choose_sheet(path, surveys, column, header_row)
    passed += [found.part for found in surveys if found is not chosen]
    if chosen.last_row <= header.bottom:
        raise IntakeError(f"{_label(path, chosen)}: there is a header, but no row after it.")
    names = unique_names(header.names)
    choice = _choose_column(path, chosen, header, names, column)
    notes = _sheet_notes(chosen, passed) + _header_notes(chosen, header) + [choice.note or ""]
    report = IntakeReport(
        path.name,
        "xlsx",
        "utf-8",
        None,
        header.names,
        names,
        names[choice.index],
        choice.guessed,
        [note for note in notes if note] + _content_notes(chosen, header),
        sheet=chosen.part.name,
        header_row=header.bottom,
        first_column=header.first,
        sha256=sha256(path),
    )
    return report, _bands(chosen, header)


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _label(path: Path, sheet: Survey) -> str:
    return f'{path}, sheet "{sheet.part.name}"'


def _wanted(path: Path, parts: list[SheetPart], wanted: str) -> SheetPart:
    for same in (lambda name: name == wanted, lambda name: normal(name) == normal(wanted)):
        if found := [part for part in parts if same(part.name)]:
            return found[0]
    if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:9]) <= len(parts):
        return parts[int(wanted[:9]) - 1]
    raise UsageError(f'{path}: there is no sheet "{wanted}". {_listing(parts)}')


def _listing(parts: list[SheetPart]) -> str:
    shown = ", ".join(f'{number} "{part.name}"' for number, part in enumerate(parts[:_NAMED], start=1))
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return f"The sheets are: {shown}{more}."


def _choose_sheet(
    path: Path, surveys: list[Survey], column: str | None, header_row: int | None
) -> tuple[Survey, Header]:
    found: list[tuple[Survey, Header]] = []
    for sheet in surveys:
        if header := _header(path, sheet, column, header_row):
            found.append((sheet, header))
    if not found:
        if all(not sheet.last_row for sheet in surveys):
            raise IntakeError(f"{path}: the sheets are empty. It needs at least one question.")
        raise UsageError(
            f"{path}: no table was found. Say where it begins with --sheet and --header-row. "
            f"{_listing([sheet.part for sheet in surveys])}"
        )
    if len(found) == 1:
        return found[0]
    named = [(sheet, header) for sheet, header in found if header.tier is not None]
    if not named:
        raise _unsure(path, found)
    named.sort(key=lambda pair: (pair[1].tier, _is_aside(pair[0]), -_rows_below(pair[0])))
    best, *others = named
    rivals = [
        pair
        for pair in others
        if pair[1].tier == best[1].tier
        and _is_aside(pair[0]) == _is_aside(best[0])
        and _rows_below(pair[0]) * _RIVAL >= _rows_below(best[0])
    ]
    if rivals:
        several = ", ".join(f'"{sheet.part.name}"' for sheet, _ in [best, *rivals][:_NAMED])
        raise UsageError(
            f"{path}: several sheets could hold the questions: {several}. Say which with --sheet NAME "
            f'(or its number), such as --sheet "{best[0].part.name}".'
        )
    return best


def _header(path: Path, sheet: Survey, column: str | None, header_row: int | None) -> Header | None:
    if header_row is None:
        if column is None and is_list(sheet):
            (only,) = sheet.filled
            before = sheet.sample[0].number - 1
            return Header(before, before, only, ["question"], tier=0)
        return find_header(sheet, column)
    if header_row == 0:
        columns = sorted(sheet.filled) or [1]
        single = len(columns) == 1
        return Header(
            0, 0, columns[0], ["question"] if single else [""] * (columns[-1] - columns[0] + 1), None
        )
    if not any(row.number == header_row for row in sheet.sample):
        if sheet.last_row and len(sheet.sample) and header_row > sheet.sample[-1].number:
            raise UsageError(f"{_label(path, sheet)}: row {header_row} is too far down for a header.")
        return None
    return header_at(sheet, header_row)


def _rows_below(sheet: Survey) -> int:
    """About how many rows the fullest column has."""
    return max(sheet.filled.values(), default=0)


def _is_aside(sheet: Survey) -> bool:
    return bool(set(normal(sheet.part.name).split()) & _ASIDE)


def _longest(sheet: Survey, header: Header, names: list[str]) -> str | None:
    sizes = [sheet.characters[column] for column in range(header.first, header.last + 1)]
    return names[sizes.index(max(sizes))] if any(sizes) else None


def _unsure(path: Path, found: list[tuple[Survey, Header]]) -> UsageError:
    sheet, header = max(found, key=lambda pair: max(pair[0].characters.values(), default=0))
    name = _longest(sheet, header, unique_names(header.names))
    return UsageError(
        f"{path}: in no sheet does the name of a column say that it holds the questions. The longest texts are "
        f'in "{name}" of "{sheet.part.name}": say --sheet "{sheet.part.name}" --column "{name}" if that is it. '
        f"{_listing([pair[0].part for pair in found])}"
    )


def _choose_column(path: Path, sheet: Survey, header: Header, names: list[str], column: str | None) -> Choice:
    longest = _longest(sheet, header, names)
    try:
        return choose(_label(path, sheet), names, column, longest, header.names)
    except UsageError as error:
        raise UsageError(f"{error} The header was taken to be row {header.top} (--header-row).") from None


def _sheet_notes(sheet: Survey, passed: list[SheetPart]) -> list[str]:
    notes = []
    if passed:
        shown = ", ".join(f'"{part.name}"{" (hidden)" * part.hidden}' for part in passed[:5])
        more = f" and {len(passed) - 5} more" if len(passed) > 5 else ""
        notes.append(f'The questions are in sheet "{sheet.part.name}"; passed over: {shown}{more}.')
    if sheet.part.hidden:
        notes.append(f'The sheet "{sheet.part.name}" is hidden.')
    return notes


def _header_notes(sheet: Survey, header: Header) -> list[str]:
    if not header.bottom or not any(row.number == header.top for row in sheet.sample):
        return ["The sheet has no header: its first row is a question already, and is taken as one."]
    before = sum(row.number < header.top for row in sheet.sample)
    where = f"rows {header.top} to {header.bottom}" if header.bottom > header.top else f"row {header.top}"
    if not before and header.top == 1 and header.bottom == 1:
        return []
    over = f"; {before} row{'s' * (before != 1)} above it passed over" if before else ""
    return [f"The header is in {where}{over}."]


def _content_notes(sheet: Survey, header: Header) -> list[str]:
    facts = sheet.facts
    notes = []
    if sheet.hidden_rows:
        notes.append(
            f"{_counted(sheet.hidden_rows, 'row')} hidden, perhaps by a filter, and taken all the same."
        )
    hidden = sorted(column for column in facts.hidden_columns if sheet.filled[column])
    if hidden:
        notes.append(f"Hidden columns are kept: {joined(hidden)}.")
    if sheet.lost:
        notes.append(
            f"{_counted(sheet.lost, 'formula')} without a stored value, read as nothing. "
            "Open the workbook in a spreadsheet program and save it, and they have one."
        )
    elif facts.formulas:
        notes.append(f"{_counted(facts.formulas, 'formula')} taken by the stored value.")
    if sheet.errors:
        notes.append(f"{_counted(sheet.errors, 'cell')} with an error value such as #N/A.")
    if facts.links:
        notes.append(f"{_counted(facts.links, 'cell')} with a link; the text is taken, not the address.")
    beyond = sorted(column for column in sheet.filled if column > header.last)
    if beyond:
        notes.append(f"There is text beyond the header, in {joined(beyond)}; it is kept as extra cells.")
    return notes


def _counted(count: int, noun: str) -> str:
    verb = "is" if count == 1 else "are"
    return (
        f"{count:,} {noun}{'s' * (count != 1)} {verb}"
        if noun == "row"
        else f"{count:,} {noun}{'s' * (count != 1)}"
    )


def workbook_rows(path: Path, report: IntakeReport, bands: Bands) -> Iterator[InputRow]:
    """The rows below the header in which a cell has text."""
    after = report.header_row or 0
    with open_workbook(path) as workbook:
        part = _wanted(path, workbook.sheets, report.sheet or "")
        for row in workbook.rows(part):
            if row.number > after and any(cell.text for cell in row.cells.values()):
                yield input_row(row, report, bands.get(row.number))


def input_row(row: SheetRow, report: IntakeReport, band: int | None = None) -> InputRow:
    """One row of a sheet; `band` is the first column of a merged cell over all of the header's columns."""
    first, width = report.first_column or 1, len(report.columns)
    number = row.number - (report.header_row or 0)
    last = max(first + width - 1, *(column for column, cell in row.cells.items() if cell.text))
    cells = [row.cells[column].text if column in row.cells else "" for column in range(first, last + 1)]
    notes = ["hidden row"] if row.hidden else []
    if any(cells[width:]):
        notes.append(f"row has {len(cells)} cells, {width} expected")
    asked = row.cells.get(first + report.columns.index(report.question_column))
    if band is not None and not any(cells[: band - first] + cells[band - first + 1 :]):
        notes.append("a heading over all columns, not a question")
        return InputRow(number, None, cells, notes)
    if asked is None:
        return InputRow(number, None, cells, notes)
    if asked.lost:
        notes.append("the question is a formula without a stored value")
    if asked.error:
        notes.append(f"the question cell holds the error {asked.text}")
    question = None if asked.error else as_question(asked.text)
    if "\N{REPLACEMENT CHARACTER}" in asked.text:
        notes.append("the question holds a replacement character")
    return InputRow(number, question, cells, notes)


def _bands(sheet: Survey, header: Header) -> Bands:
    """The rows in which one merged cell covers all columns that have a name: headings within the table."""
    named = [header.first + place for place, name in enumerate(header.names) if name]
    if len(named) < 2:
        return {}
    return {
        top: left
        for top, left, _, right in sheet.facts.merges
        if top > header.bottom and header.first <= left <= named[0] and right >= named[-1]
    }
