"""A batch as files: its rows of every view of `history`, as Parquet or as JSON lines.

Rows are streamed from one snapshot, so that memory does not grow with the batch and the files fit together.
Files appear when all of them are written, `export.json` as the last.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg.types.string import TextLoader
from sqlalchemy import Engine

from shared.errors import CraglineError, NotFound, UsageError

Form = Literal["parquet", "jsonl"]
MANIFEST = "export.json"
# View -> the columns its rows are ordered by. A view that is not there is left out.
_VIEWS = {
    "batches": "batch_id",
    "rows": "row_number",
    "runs": "first_row, run_id",
    "transitions": "run_id, step, branch, attempt",
    "grades": "run_id, step, document_rank",
    "model_calls": "run_id, call_id",
    "web_searches": "run_id, search_id",
    "retrievals": "run_id, retrieval_id",
    "events": "event_id",
}
_PROMPTS = (
    "SELECT * FROM history.prompts WHERE (role, version) IN"
    " (SELECT role, prompt_version FROM history.model_calls WHERE batch_id = %s) ORDER BY role, version"
)
_ROWS, _BYTES = 10_000, 16 * 2**20  # a row group ends with whichever comes first


def export_batch(engine: Engine, batch_id: int, folder: Path, form: Form = "parquet") -> dict[str, int]:
    """Write a batch's rows into `folder`, a file a view; returns the number of rows of each.

    The folder is made if need be. An earlier export of the same batch in it is replaced. Raises NotFound,
    UsageError when the folder holds another batch, CraglineError when it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_free(folder, batch_id)
        with _all_or_none(folder) as parts, _snapshot(engine) as connection:
            write = _parquet if form == "parquet" else _jsonl
            counts = {
                view: write(connection, query, batch_id, parts(f"{view}.{form}"))
                for view, query in _queries(connection, batch_id).items()
            }
            told = {"batch_id": batch_id, "form": form, "rows": counts}
            parts(MANIFEST).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        return counts
    except OSError as error:
        raise CraglineError(
            f"{error.filename or folder}: cannot be written ({error.strerror or error})."
        ) from None


def _check_free(folder: Path, batch_id: int) -> None:
    try:
        there = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["batch_id"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        there = "something else"
    if there != batch_id:
        raise UsageError(
            f"{folder} holds an export of batch {there}. Choose another folder, or remove it first."
        )


def _queries(connection: "psycopg.Connection[Any]", batch_id: int) -> dict[str, str]:
    """The query of each view that is there, with the batch as its parameter. Raises NotFound."""
    if connection.execute("SELECT FROM history.batches WHERE batch_id = %s", (batch_id,)).fetchone() is None:
        raise NotFound(f"There is no batch {batch_id}. `cragline batch list` shows those there are.")
    there = {
        name
        for (name,) in connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'history'::regnamespace AND relkind = 'v'"
        ).fetchall()
    }
    queries = {
        view: f"SELECT * FROM history.{view} WHERE batch_id = %s ORDER BY {order}"  # noqa: S608 - our own names
        for view, order in _VIEWS.items()
        if view in there
    }
    return queries | {"prompts": _PROMPTS}


@contextmanager
def _snapshot(engine: Engine) -> Iterator["psycopg.Connection[Any]"]:
    """The driver's connection in one read-only transaction that sees one moment."""
    with engine.connect() as connection:
        driver: psycopg.Connection[Any] | None = connection.connection.driver_connection
        assert driver is not None
        with driver.transaction(force_rollback=True):
            driver.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield driver


@contextmanager
def _all_or_none(folder: Path) -> Iterator[Any]:
    """Gives out temporary paths beside their places; at the end all of them move there, the last one last."""
    given: dict[Path, Path] = {}

    def part(name: str) -> Path:
        place = folder / name
        given[place] = folder / f".{name}.{os.getpid()}.tmp"
        return given[place]

    try:
        yield part
        (folder / MANIFEST).unlink(missing_ok=True)  # while files are exchanged, nothing vouches for them
        for place, temporary in given.items():
            temporary.replace(place)
    finally:
        for temporary in given.values():
            temporary.unlink(missing_ok=True)


# -- JSON lines ------------------------------------------------------------------------------------------
def _jsonl(connection: "psycopg.Connection[Any]", query: str, batch_id: int, path: Path) -> int:
    """Postgres makes the JSON: times in ISO 8601, numbers as numbers, JSON as it is."""
    count = 0
    wrapped = f"SELECT row_to_json(line)::text FROM ({query}) AS line"  # noqa: S608 - a query of this module
    with path.open("w", encoding="utf-8") as out, connection.cursor(name="cragline_export") as cursor:
        cursor.itersize = 500
        for (line,) in cursor.execute(wrapped.encode(), (batch_id,)):
            out.write(line + "\n")
            count += 1
    return count


# -- Parquet ---------------------------------------------------------------------------------------------
def _parquet(connection: "psycopg.Connection[Any]", query: str, batch_id: int, path: Path) -> int:
    import pyarrow as pa  # takes a moment to import, and only this needs it
    import pyarrow.parquet as pq

    count = 0
    with connection.cursor(name="cragline_export") as cursor:
        for name in ("json", "jsonb"):  # as the text they are
            cursor.adapters.register_loader(name, TextLoader)
        cursor.itersize = 500
        cursor.execute(query.encode(), (batch_id,))
        columns = cursor.description or []
        schema = pa.schema([(column.name, _arrow_type(pa, column)) for column in columns])
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for rows in _groups(cursor):
                count += len(rows)
                values = zip(*rows, strict=True)
                arrays = [pa.array(list(one), kind) for one, kind in zip(values, schema.types, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return count


def _groups(rows: Iterator[tuple[Any, ...]] | Any) -> Iterator[list[tuple[Any, ...]]]:
    """Lists of rows, none of them much larger than a row group may be in memory."""
    group: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if len(group) >= _ROWS or size >= _BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _arrow_type(pa: Any, column: psycopg.Column) -> Any:
    kinds = psycopg.adapters.types
    if column.type_code == kinds["numeric"].oid and column.precision is not None:
        return pa.decimal128(column.precision, column.scale)
    found = {
        kinds["bool"].oid: pa.bool_(),
        kinds["int4"].oid: pa.int32(),
        kinds["int8"].oid: pa.int64(),
        kinds["float8"].oid: pa.float64(),
        kinds["text"].array_oid: pa.list_(pa.string()),
        kinds["date"].oid: pa.date32(),
        kinds["timestamptz"].oid: pa.timestamp("us", tz="UTC"),
        **{kinds[name].oid: pa.string() for name in ("text", "json", "jsonb")},
    }.get(column.type_code)
    if found is None:  # a new kind of column: decide here what it is to be
        raise CraglineError(
            f"Column {column.name} has a type that cannot be exported yet ({column.type_code})."
        )
    return found
