"""Looks at a file of questions and decides how to read it; the entry is `open_questions`."""

import stat
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from api.intake.archive import archive_rows, open_archive
from api.intake.binary import refuse_sheets
from api.intake.columns import Choice, choose, is_question_word, looks_like_question, unique_names
from api.intake.encoding import Encoding, detect
from api.intake.json_file import json_rows, open_json
from api.intake.jsonl import first_value, jsonl_rows
from api.intake.lines import as_question, open_lines, sample_lines, txt_rows
from api.intake.model import InputRow, IntakeReport, QuestionFile, stamp
from api.intake.tables import DELIMITERS, Layout, find_layout, is_table, records, refuse_json
from api.intake.workbook import open_workbook_file, workbook_rows
from shared.clean import one_line
from shared.errors import IntakeError, NotFound, UsageError

_TABLES = (".csv", ".tsv", ".tab")
_JSONL = (".jsonl", ".ndjson")
_JSON = (".json", ".jsonc", ".json5")
_SHEETS = (".xlsx", ".xlsm", ".xltx", ".xls")  # .xls: often an .xlsx by another name, or else refused
_ZIP = ".zip"
# What the name of a column has at the most, when nothing else tells it from a question.
_NAME_WORDS, _NAME_CHARS = 3, 40

Rows = partial[Iterator[InputRow]]


def open_questions(
    path: Path, column: str | None = None, *, sheet: str | None = None, header_row: int | None = None
) -> QuestionFile:
    """Looks at a file of questions and decides how to read it: by its suffix, once its content agrees.

    `column`: the question column's name, or its 1-based number. `sheet`: of a workbook, by name or 1-based
    number; `header_row`: the row of that sheet with the header, 0 for none. None: guess, or raise UsageError
    when unsure. Raises NotFound, IntakeError (the file cannot be taken) or UsageError (the choices).
    """
    try:
        before = _check(path)
        suffix = path.suffix.lower()
        if suffix in (*_SHEETS, _ZIP):
            return QuestionFile(path, *_open_zipped(path, column, sheet, header_row), before)
        if sheet is not None or header_row is not None:
            raise UsageError(f"{path}: only spreadsheets have sheets. Omit --sheet and --header-row.")
        encoding = detect(path)
        if suffix in _JSONL:
            report, rows = _open_jsonl(path, encoding, column)
        elif suffix in _JSON:
            report, items, field = open_json(path, encoding, column)
            rows = partial(json_rows, path, items, field)
        elif suffix in _TABLES:
            report, rows = _open_table(path, encoding, column)
        else:
            report, rows = _open_txt(path, encoding, column)
    except (OSError, UnicodeError) as error:
        raise IntakeError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}).") from error
    return QuestionFile(path, report, rows, before)


def _check(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{path}: there is no such file.") from None
    if stat.S_ISDIR(status.st_mode):
        raise IntakeError(f"{path}: this is a folder. Name one file of questions.")
    if not stat.S_ISREG(status.st_mode):
        raise IntakeError(f"{path}: not an ordinary file. Save the questions to a file first.")
    suffix = path.suffix.lower()
    if suffix in (".xlsb", ".ods", ".numbers"):
        raise IntakeError(f"{path}: {suffix} files cannot be read. Save it as .xlsx or as CSV.")
    if suffix not in (*_TABLES, *_JSONL, *_JSON, *_SHEETS, _ZIP, ".txt"):
        raise IntakeError(
            f"{path}: only .csv, .tsv, .xlsx, .jsonl, .json, .txt and .zip files can be read. Rename or export it."
        )
    return stamp(path)


def _open_zipped(
    path: Path, column: str | None, sheet: str | None, header_row: int | None
) -> tuple[IntakeReport, Rows]:
    if path.suffix.lower() in _SHEETS:
        refuse_sheets(path)
        report, bands = open_workbook_file(path, column, sheet, header_row)
        return report, partial(workbook_rows, path, report, bands)
    if not zipfile.is_zipfile(path):
        raise IntakeError(f"{path}: this is no zip, whatever its name says. Give it the name of what it is.")
    opener = partial(_open_member, column, sheet, header_row)
    report = open_archive(path, opener)
    return report, partial(archive_rows, path, report, opener)


def _open_member(column: str | None, sheet: str | None, header_row: int | None, path: Path) -> QuestionFile:
    if path.suffix.lower() in _SHEETS:
        return open_questions(path, column, sheet=sheet, header_row=header_row)
    return open_questions(path, column)


def _open_jsonl(path: Path, encoding: Encoding, column: str | None) -> tuple[IntakeReport, Rows]:
    first = first_value(path, encoding)
    if isinstance(first, str):
        if column is not None:
            raise UsageError(
                f"{path}: the lines are plain strings, so there is no column to choose. Omit --column."
            )
        report = IntakeReport(
            path.name, "jsonl", encoding.name, None, ["question"], ["question"], "question", False
        )
        field = None
    else:
        keys = list(first)
        choice = choose(str(path), keys, column, _longest([[str(value) for value in first.values()]], keys))
        field = keys[choice.index]
        report = IntakeReport(path.name, "jsonl", encoding.name, None, keys, keys, field, choice.guessed)
        report.notes += [note for note in (choice.note,) if note]
    report.notes += [encoding.note] if encoding.note else []
    return report, partial(jsonl_rows, path, encoding, field)


def _open_txt(path: Path, encoding: Encoding, column: str | None) -> tuple[IntakeReport, Rows]:
    sample, complete = sample_lines(path, encoding)
    layout = find_layout(sample, complete)
    if layout is None:
        raise IntakeError(f"{path}: the file holds nothing but blank lines. It needs at least one question.")
    if column is not None or is_table(layout, wide=encoding.codec.startswith("utf-16")):
        return _open_table(path, encoding, column)
    refuse_json(sample[layout.skip], path)
    titled = is_question_word(sample[layout.skip])
    skip = layout.skip + 1 if titled else 0
    if titled and complete and not any(map(as_question, sample[skip:])):
        raise IntakeError(f"{path}: there is a heading, but no question after it.")
    name = sample[layout.skip].strip() if titled else "question"
    report = IntakeReport(path.name, "txt", encoding.name, None, [name], [name], name, False)
    if titled:
        report.notes.append(f'The first line, "{name}", was taken as a heading.')
    report.notes += [encoding.note] if encoding.note else []
    return report, partial(txt_rows, path, encoding, skip)


def _open_table(path: Path, encoding: Encoding, column: str | None) -> tuple[IntakeReport, Rows]:
    sample, complete = sample_lines(path, encoding)
    layout = find_layout(sample, complete, "\t" if path.suffix.lower() in (".tsv", ".tab") else None)
    if layout is None:
        raise IntakeError(f"{path}: the file holds nothing but blank lines. It needs at least one question.")
    refuse_json(sample[layout.skip], path)
    notes: list[str] = []
    header = layout.header
    headless = _headless(path, layout, column)
    if headless:
        header = ["question"]
        notes.append("The file has no header: its first line is a question already, and is taken as one.")
    columns = unique_names(header)
    choice = _choose_column(path, layout, header, columns, None if headless else column)
    if choice.note:
        notes.append(choice.note)
    if layout.delimiter not in (None, ","):
        notes.append(
            f"The cells are separated by {DELIMITERS.get(layout.delimiter or '', layout.delimiter)}s."
        )
    notes += [encoding.note] if encoding.note else []
    rows = partial(_table_rows, path, encoding, layout, len(header), choice.index, headless)
    if next(rows(), None) is None:
        raise IntakeError(f"{path}: there is a header, but no row after it.")
    name = columns[choice.index]
    guessed = choice.guessed and not headless
    report = IntakeReport(
        path.name, "csv", encoding.name, layout.delimiter, header, columns, name, guessed, notes
    )
    return report, rows


def _headless(path: Path, layout: Layout, column: str | None) -> bool:
    """Whether a single column begins with a question instead of its name. Raises UsageError when unsure."""
    first = layout.header[0].strip()
    if len(layout.header) > 1 or is_question_word(first):
        return False
    if column is not None and column.strip().casefold() == first.casefold():
        return False
    if looks_like_question(first):
        return True
    if column is None and (len(first.split()) > _NAME_WORDS or len(first) > _NAME_CHARS):
        raise UsageError(
            f'{path}: the first line, "{one_line(first, 60)}", could be a header or a question. '
            'If it is the header, say --column 1; if not, put a line with the word "question" before it.'
        )
    return False


def _choose_column(
    path: Path, layout: Layout, header: list[str], columns: list[str], column: str | None
) -> Choice:
    try:
        return choose(str(path), columns, column, _longest(layout.records, columns), header)
    except UsageError as error:
        if any(map(looks_like_question, layout.header)):
            raise UsageError(
                f"{error} The first line looks like a row: does the file lack a header line?"
            ) from None
        raise


def _longest(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str | None:
    """The column with the most text in `rows`."""
    totals = [
        sum(len(cells[position]) for cells in rows if position < len(cells))
        for position in range(len(columns))
    ]
    return columns[totals.index(max(totals))] if any(totals) else None


def _table_rows(
    path: Path, encoding: Encoding, layout: Layout, width: int, index: int, headless: bool
) -> Iterator[InputRow]:
    with open_lines(path, encoding) as lines:
        for _ in range(layout.skip):
            next(lines, None)
        lines.take()
        found = records(lines, layout.delimiter, path, row=1 if headless else 0)
        if not headless:
            next(found, None)
        for number, record in enumerate(found, start=1):
            cells, notes = record.cells, record.notes
            if not cells:
                notes.append("blank line")
            elif len(cells) != width:
                notes.append(f"row has {len(cells)} cell{'s' * (len(cells) != 1)}, {width} expected")
            question = as_question(cells[index]) if index < len(cells) else None
            yield InputRow(number, question, cells, notes)
