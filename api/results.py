"""Results of a batch as CSV or JSON Lines: the rows as they came, then what became of each question.

Both writers stream and know nothing of the database; `save` puts a whole file in place or none.
"""

import csv
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from shared.clean import one_line
from shared.errors import CraglineError, UsageError

RESULT_COLUMNS = ("answer", "disposition", "reason", "sources", "web_used", "error", "run_id")
EXTRA = "extra_cells"
# What a spreadsheet may run instead of show when a cell begins with it, full-width forms included.
_FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")


@dataclass(slots=True)
class ResultRow:
    """One row of the input file, with the outcome of its question (all None for an empty row)."""

    number: int  # 1-based among the data rows
    original: list[str] | dict[str, Any] | str  # CSV cells, the JSONL object, or a line of text
    answer: str | None
    disposition: str | None
    reason: str | None
    sources: list[dict[str, Any]] | None  # [{title, source, page, origin}]
    web_used: bool | None
    error: str | None
    run_id: int | None


def result_names(columns: Iterable[str]) -> list[str]:
    """The names of our columns beside `columns`: a name that is taken gets the prefix `cragline_`."""
    taken = set(columns)
    return [_free(name, taken) for name in RESULT_COLUMNS]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name = f"cragline_{name}"
    return name


def key_union(objects: Iterable[dict[str, Any]]) -> list[str]:
    """Every key of `objects`, in order of first appearance: the columns of JSONL input written as CSV."""
    return list({key: None for item in objects for key in item})


def write_csv(out: TextIO, columns: Sequence[str], rows: Iterable[ResultRow], *, width: int = 0) -> int:
    """Writes RFC 4180 CSV and returns the number of rows. `out` must not translate newlines (newline="").

    `columns` is the header as it stood in the file (repeated names included), or for JSONL input the union
    of the keys. A short row is padded. Cells beyond the header follow *after* our columns, so that these
    stay under their names; when `width`, the number of cells of the longest row, is given, the header names
    these too and every record is equally long.
    The original cells are written as they came; ours are made harmless to spreadsheets.
    """
    return sum(out.write(line) > 0 for line in csv_lines(columns, rows, width=width)) - 1


def csv_lines(columns: Sequence[str], rows: Iterable[ResultRow], *, width: int = 0) -> Iterator[str]:
    """The header and the records of `write_csv`, one by one."""
    names = result_names(columns)
    beyond = max(0, width - len(columns))
    extras = [_free(f"{EXTRA}_{position}", {*columns, *names}) for position in range(1, beyond + 1)]
    line = _Line()
    writer = csv.writer(line, lineterminator="\r\n")
    writer.writerow([*columns, *names, *extras])
    yield line.text
    for row in rows:
        cells, extra = _original_cells(row.original, columns)
        padding = [""] * (beyond - len(extra))
        writer.writerow([*cells, *_our_cells(row), *extra, *padding])
        yield line.text


class _Line:
    """Takes what a csv writer writes: one whole record at a time."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def write_jsonl(out: TextIO, columns: Sequence[str] | None, rows: Iterable[ResultRow]) -> int:
    """Writes one JSON object a row and returns the number of rows.

    `columns` holds the unique names of CSV or text input; None when the originals are objects, and then a
    name of ours is prefixed in those rows whose object uses it. A cell that its row lacks is null; cells
    beyond the header are a list under `extra_cells`. `sources` is the list.
    """
    return sum(out.write(line) > 0 for line in jsonl_lines(columns, rows))


def jsonl_lines(columns: Sequence[str] | None, rows: Iterable[ResultRow]) -> Iterator[str]:
    """The lines of `write_jsonl`, one by one."""
    for row in rows:
        record = _original_object(row.original, columns)
        values = (row.answer, row.disposition, row.reason, row.sources, row.web_used, row.error, row.run_id)
        names = result_names([*record, *(columns or ())])
        record.update(zip(names, values, strict=True))
        yield json.dumps(record, ensure_ascii=False) + "\n"


def _original_cells(
    original: list[str] | dict[str, Any] | str, columns: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The cells under `columns`, padded, and those beyond."""
    if isinstance(original, dict):
        unnamed = {key: value for key, value in original.items() if key not in columns}
        return [_cell(original.get(name)) for name in columns], [_cell(unnamed)] if unnamed else []
    cells = [original] if isinstance(original, str) else original
    missing = len(columns) - len(cells)
    return [*cells[: len(columns)], *[""] * missing], cells[len(columns) :]


def _cell(value: Any) -> str:
    """A JSON value as a cell: text as it is, null as nothing, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _original_object(
    original: list[str] | dict[str, Any] | str, columns: Sequence[str] | None
) -> dict[str, Any]:
    if isinstance(original, dict):
        return dict(original)
    names = ["question"] if columns is None else columns
    cells = [original] if isinstance(original, str) else original
    record: dict[str, Any] = dict.fromkeys(names)
    record.update(zip(names, cells, strict=False))
    if extra := cells[len(names) :]:
        record[_free(EXTRA, set(names))] = extra
    return record


def _our_cells(row: ResultRow) -> list[str]:
    return [
        _harmless(row.answer),
        _harmless(row.disposition),
        _harmless(row.reason),
        _harmless(sources_line(row.sources)),
        _cell(row.web_used),
        _harmless(row.error),
        _cell(row.run_id),
    ]


def _harmless(text: str | None) -> str:
    """`text` with an apostrophe before it when a spreadsheet would take it for a formula."""
    if text is None:
        return ""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def sources_line(sources: Sequence[dict[str, Any]] | None) -> str | None:
    """`[1] title (source, page 3); [2] title (source)`, on one line; the numbers are those in the answer."""
    if sources is None:
        return None
    return "; ".join(f"[{number}] {_source(source)}" for number, source in enumerate(sources, 1))


def _source(source: dict[str, Any]) -> str:
    title, place = one_line(str(source.get("title") or "")), one_line(str(source.get("source") or ""))
    page = source.get("page")
    inside = [part for part in (place if title else "", f"page {page}" if page is not None else "") if part]
    return f"{title or place} ({', '.join(inside)})" if inside else title or place


def save(
    path: Path,
    header: Sequence[str],
    names: Sequence[str] | None,
    rows: Iterable[ResultRow],
    *,
    width: int = 0,
) -> int:
    """Writes `path` (.csv or .jsonl) whole or not at all, and returns the number of rows.

    `header` and `width` are for `write_csv`, `names` for `write_jsonl`. A .csv begins with a byte order mark,
    without which Excel takes UTF-8 for something else.
    Raises UsageError for another suffix, CraglineError when the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        with atomic_text(path, encoding="utf-8-sig") as out:
            return write_csv(out, header, rows, width=width)
    if suffix in (".jsonl", ".ndjson"):
        with atomic_text(path, encoding="utf-8") as out:
            return write_jsonl(out, names, rows)
    raise UsageError(f"{path}: results are written as .csv or .jsonl. Give the file one of these endings.")


@contextmanager
def atomic_text(path: Path, *, encoding: str = "utf-8") -> Iterator[TextIO]:
    """A text file that appears under `path` only when the block ends well; newlines are not translated.

    It is written beside its place, because a move is atomic only within one file system. Something that is
    no ordinary file (/dev/stdout, a pipe) is written directly. Raises CraglineError for errors of writing.
    """
    try:
        if path.is_dir():
            raise CraglineError(f"{path}: this is a folder. Name a file.")
        if not path.parent.is_dir():
            raise CraglineError(f"{path}: there is no folder {path.parent}. Create it first.")
        if path.exists() and not path.is_file():
            with path.open("w", encoding=encoding, newline="") as out:
                yield out
            return
        with _replacing(path.resolve(), encoding) as out:  # a link is kept, and what it points to replaced
            yield out
    except OSError as error:
        raise CraglineError(f"{path}: cannot be written ({error.strerror or error}).") from error


@contextmanager
def _replacing(target: Path, encoding: str) -> Iterator[TextIO]:
    temporary = target.with_name(f".cragline-{secrets.token_hex(8)}.tmp")
    try:
        # "x" obeys the umask, as an ordinary file does; the tempfile module would make it private.
        with temporary.open("x", encoding=encoding, newline="") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
