"""The results of a stored batch, as `api.results` writes them: for the command line and for HTTP."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine

from api.results import ResultRow
from shared import history


def result_layout(
    engine: Engine, batch_id: int, source: dict[str, Any]
) -> tuple[list[str], list[str] | None, int]:
    """`header` and `width` for tables, and `names` for JSON lines: (header, names, width)."""
    from api.intake import OBJECT_FORMATS  # with it come the readers, which take a while to import

    # Objects bring their own keys; cells (also those of a JSONL of plain strings) stand under the header.
    keys = history.original_keys(engine, batch_id) if source["format"] in OBJECT_FORMATS else []
    if keys:
        return keys, None, 0
    return source["header"], source["columns"], history.widest_row(engine, batch_id)


def result_rows(engine: Engine, batch_id: int) -> Iterator[ResultRow]:
    for row in history.results(engine, batch_id):
        empty = row.run_id is None
        yield ResultRow(
            number=row.row_number,
            original=row.original,
            answer=row.answer,
            disposition="empty" if empty else row.status,
            reason="the row has no question" if empty else row.reason,
            sources=row.sources,
            web_used=row.web_used,
            error=row.error,
            run_id=row.run_id,
            notes=[*row.row_notes, *(row.run_notes or [])],
        )
