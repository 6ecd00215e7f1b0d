"""A batch's rows of every table as JSON lines, before retention drops them: a file a table, streamed."""

import json
import os
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Table, text
from sqlalchemy.engine import Connection

from shared.errors import CraglineError, NotFound, UsageError
from shared.tables import Base

MANIFEST = "archive.json"  # written last: where it is, the files beside it are whole


def archive_jsonl(engine: Engine, batch_id: int, folder: Path) -> str:
    """Writes `folder/batch-<id>/<table>.jsonl`, and returns that folder as a string.

    All files are of one moment. One that is there already is replaced, unless it is whole. Raises NotFound,
    and CraglineError when something cannot be written.
    """
    place = folder / f"batch-{batch_id}"
    try:
        if (place / MANIFEST).exists():
            raise UsageError(f"{place} holds an archive already. Move it away, or choose another folder.")
        place.mkdir(parents=True, exist_ok=True)
        with engine.connect().execution_options(
            isolation_level="REPEATABLE READ", stream_results=True, max_row_buffer=500
        ) as connection:
            if (
                connection.execute(text("SELECT FROM batches WHERE id = :id"), {"id": batch_id}).one_or_none()
                is None
            ):
                raise NotFound(f"There is no batch {batch_id}.")
            counts = {
                table.name: _write(connection, table, batch_id, place)
                for table in Base.metadata.sorted_tables
                if table.name == "batches" or "batch_id" in table.c
            }
        told = json.dumps({"batch_id": batch_id, "rows": counts}, indent=2)
        _replace(place / MANIFEST, [told])
    except OSError as error:
        raise CraglineError(
            f"{error.filename or place}: cannot be written ({error.strerror or error})."
        ) from None
    return str(place)


def _write(connection: Connection, table: Table, batch_id: int, place: Path) -> int:
    name, which = table.name, "id" if table.name == "batches" else "batch_id"
    order = ", ".join(column.name for column in table.primary_key)
    # Postgres makes the JSON: times in ISO 8601, numbers as numbers, JSON as it is
    query = text(f"SELECT row_to_json({name})::text FROM {name} WHERE {which} = :id ORDER BY {order}")  # noqa: S608 - our own names
    lines = connection.execute(query, {"id": batch_id}).scalars()
    return _replace(place / f"{name}.jsonl", lines)


def _replace(path: Path, lines: Any) -> int:
    """Writes the lines beside `path` and moves them there; returns how many."""
    count = 0
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as out:
        for line in lines:
            out.write(line + "\n")
            count += 1
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(path)
    return count
