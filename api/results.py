"""Results of a batch as CSV or JSON Lines: the rows as they came, then what became of each question.

The writers stream and know nothing of the database; `save` puts a whole file in place or none.
`results_xlsx` writes the same as a workbook.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from api.files import atomic_binary, atomic_text
from api.harmless import harmless
from shared.clean import free_name, one_line
from shared.errors import UsageError

RESULT_COLUMNS = ("answer", "disposition", "reason", "sources", "web_used", "error", "run_id", "notes")
EXTRA = "extra_cells"


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
    notes: list[str] = field(default_factory=list)  # what was mended on the way in, what the run went without


def result_names(columns: Iterable[str]) -> list[str]:
    """The names of our columns beside `columns`: a name that is taken gets the prefix `cragline_`."""
    taken = set(columns)
    return [free_name(name, taken) for name in RESULT_COLUMNS]


def write_csv(
    out: TextIO, columns: Sequence[str], rows: Iterable[ResultRow], *, width: int = 0, raw: bool = False
) -> int:
    """Writes RFC 4180 CSV and returns the number of rows. `out` must not translate newlines (newline="").

    `columns` is the header as it stood in the file (repeated names included), or for JSONL input the union
    of the keys. A short row is padded. Cells beyond the header follow *after* our columns, so that these
    stay under their names; when `width`, the number of cells of the longest row, is given, the header names
    these too and every record is equally long.
    Every cell, those of the input too, is made harmless to spreadsheets, unless `raw`.
    """
    lines = csv_lines(columns, rows, width=width, raw=raw)
    return sum(out.write(line) > 0 for line in lines) - 1  # without the header


def csv_lines(
    columns: Sequence[str], rows: Iterable[ResultRow], *, width: int = 0, raw: bool = False
) -> Iterator[str]:
    """The header and the records of `write_csv`, one by one."""
    line = _Line()
    writer = csv.writer(line, lineterminator="\r\n")
    shown = str if raw else harmless
    beyond = max(0, width - len(columns))
    writer.writerow(map(shown, header_of(columns, width)))
    yield line.text
    for row in rows:
        cells, extra = original_cells(row.original, columns)
        padding = [""] * (beyond - len(extra))
        writer.writerow(map(shown, [*cells, *_our_cells(row), *extra, *padding]))
        yield line.text


class _Line:
    """Takes what a csv writer writes: one whole record at a time."""

    text = ""

    def write(self, text: str) -> None:
        self.text = text


def header_of(columns: Sequence[str], width: int) -> list[str]:
    """The names over the cells of a record: the input's, ours, and those of cells beyond the header."""
    names = result_names(columns)
    beyond = range(1, max(0, width - len(columns)) + 1)
    return [*columns, *names, *(free_name(f"{EXTRA}_{place}", {*columns, *names}) for place in beyond)]


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
        values = (
            row.answer,
            row.disposition,
            row.reason,
            row.sources,
            row.web_used,
            row.error,
            row.run_id,
            row.notes,
        )
        names = result_names([*record, *(columns or ())])
        record.update(zip(names, values, strict=True))
        yield json.dumps(record, ensure_ascii=False) + "\n"


def original_cells(
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
        record[free_name(EXTRA, names)] = extra
    return record


def _our_cells(row: ResultRow) -> list[str]:
    return [
        row.answer or "",
        row.disposition or "",
        row.reason or "",
        sources_line(row.sources) or "",
        _cell(row.web_used),
        row.error or "",
        _cell(row.run_id),
        "; ".join(row.notes),
    ]


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
    raw: bool = False,
    summary: Sequence[tuple[str, Any]] = (),
) -> int:
    """Writes `path` (.csv, .jsonl or .xlsx) whole or not at all, and returns the number of rows.

    `header` and `width` are for `write_csv` and `write_xlsx`, `names` for `write_jsonl`, `summary` for
    `write_xlsx`. A .csv begins with a byte order mark, without which Excel takes UTF-8 for something else;
    with `raw` it does not.
    Raises UsageError for another suffix, CraglineError when the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        with atomic_text(path, encoding="utf-8" if raw else "utf-8-sig") as out:
            return write_csv(out, header, rows, width=width, raw=raw)
    if suffix in (".jsonl", ".ndjson"):
        with atomic_text(path, encoding="utf-8") as out:
            return write_jsonl(out, names, rows)
    if suffix == ".xlsx":
        from api.results_xlsx import write_xlsx  # takes 0.1 s to import

        with atomic_binary(path) as file:
            return write_xlsx(file, header, rows, width=width, summary=summary)
    raise UsageError(
        f"{path}: results are written as .csv, .xlsx or .jsonl. Give the file one of these endings."
    )
