"""Reading what happened: progress, results, timelines, and any SQL a person asks."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from psycopg import sql as pg_sql
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, Row, text

from shared.clean import needs_cleaning
from shared.db import read_rows, transaction
from shared.errors import CraglineError, NotFound

COUNTS = ("submitted", "pending", "running", "answered", "gave_up", "failed", "cancelled")


def list_batches(engine: Engine, limit: int = 50) -> list[dict[str, Any]]:
    """The newest batches, newest first, each as a row of `batch_progress`."""
    return find_batches(engine, Wanted(), limit)


@dataclass(frozen=True)
class Wanted:
    """Which batches are looked for; None: whichever."""

    owner: str | None = None
    status: str | None = None
    pipeline: str | None = None
    collection: str | None = None
    name: str | None = None  # a part of it, in upper or lower case
    before: int | None = None  # only batches with a smaller number


_FIND = """
SELECT id FROM batches
 WHERE (CAST(:owner AS text) IS NULL OR owner = :owner)
   AND (CAST(:status AS text) IS NULL OR status = :status)
   AND (CAST(:pipeline AS text) IS NULL OR pipeline = :pipeline)
   AND (CAST(:collection AS text) IS NULL OR collection = :collection)
   AND (CAST(:name AS text) IS NULL OR position(lower(:name) IN lower(name)) > 0)
   AND (CAST(:before AS bigint) IS NULL OR id < :before)
 ORDER BY id DESC LIMIT :limit
"""


def find_batches(engine: Engine, wanted: Wanted, limit: int) -> list[dict[str, Any]]:
    """Batches, newest first, each as a row of `batch_progress`, which counts only those that are shown."""
    ids = find_ids(engine, wanted, limit)
    query = "SELECT * FROM batch_progress WHERE batch_id = ANY (:ids) ORDER BY batch_id DESC"
    return read_rows(engine, query, ids=ids) if ids else []


def find_ids(engine: Engine, wanted: Wanted, limit: int) -> list[int]:
    """The numbers of batches, newest first."""
    with transaction(engine) as session:
        return list(session.scalars(text(_FIND), {**asdict(wanted), "limit": limit}))


def owner_of_batch(engine: Engine, batch_id: int) -> str | None:
    """The owner of a batch; None for one of the command line. Raises NotFound."""
    found = read_rows(engine, "SELECT owner FROM batches WHERE id = :id", id=batch_id)
    if not found:
        raise NotFound(f"There is no batch {batch_id}. `cragline batch list` shows those there are.")
    owner: str | None = found[0]["owner"]
    return owner


def progress(engine: Engine, batch_id: int) -> dict[str, Any]:
    """The batch's row of `batch_progress`. Raises NotFound."""
    found = read_rows(engine, "SELECT * FROM batch_progress WHERE batch_id = :id", id=batch_id)
    if not found:
        raise NotFound(f"There is no batch {batch_id}. `cragline batch list` shows those there are.")
    return found[0]


def has_ended(row: dict[str, Any]) -> bool:
    """Whether a row of `batch_progress` has nothing open any more."""
    return not row["pending"] and not row["running"]


def ended_count(row: Mapping[str, Any]) -> int:
    """How many questions of a row of `batch_progress` have a disposition."""
    return int(row["submitted"] - row["pending"] - row["running"])


def batch_details(engine: Engine, batch_id: int) -> dict[str, Any]:
    """Plan and source of a batch. Raises NotFound."""
    found = read_rows(engine, "SELECT plan, source FROM batches WHERE id = :id", id=batch_id)
    if not found:
        raise NotFound(f"There is no batch {batch_id}. `cragline batch list` shows those there are.")
    return found[0]


# The page is cut before the join: Postgres knows nothing yet of a batch that has just come, takes it for small,
# and would else join and sort all that is left of it for every page.
_RESULTS = """
SELECT batch_rows.row_number, batch_rows.original, batch_rows.notes AS row_notes, runs.id AS run_id,
       runs.status, runs.answer, runs.reason, runs.error, runs.sources, runs.web_used, runs.notes AS run_notes
  FROM (SELECT row_number, run_id, original, notes FROM batch_rows
         WHERE batch_id = :id AND row_number > :after ORDER BY row_number LIMIT :page) AS batch_rows
  LEFT JOIN runs ON runs.id = batch_rows.run_id
 ORDER BY batch_rows.row_number
"""
_PAGE = 1000  # rows


def results(engine: Engine, batch_id: int) -> Iterator[Row[Any]]:
    """Every row of the submitted file in input order, with what its run came to. Streamed.

    Page by page, each in a transaction of its own: a slow reader holds neither a connection nor a snapshot.
    """
    after = 0
    while True:
        with engine.connect() as connection:
            values = {"id": batch_id, "after": after, "page": _PAGE}
            page = connection.execute(text(_RESULTS), values).all()
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].row_number


def run_details(engine: Engine, run_id: int) -> dict[str, Any]:
    """A run with the rows it answers. Raises NotFound."""
    found = read_rows(
        engine,
        """
        SELECT runs.id AS run_id, runs.batch_id, batches.name AS batch, batches.pipeline, runs.question,
               runs.status, runs.step, runs.answer, runs.reason, runs.error, runs.sources, runs.web_used,
               runs.notes, runs.admitted_at, runs.ended_at, runs.round, runs.first_step, runs.forked_from,
               runs.reused_from, runs.saved_usd,
               ARRAY(SELECT row_number FROM batch_rows WHERE batch_rows.run_id = runs.id
                      ORDER BY row_number) AS rows
          FROM runs JOIN batches ON batches.id = runs.batch_id
         WHERE runs.id = :id
        """,
        id=run_id,
    )
    if not found:
        raise NotFound(f"There is no run {run_id}. The results of a batch name the run of each row.")
    return found[0]


def timeline(engine: Engine, run_id: int) -> list[dict[str, Any]]:
    """Every attempt of every node of a run, in order, and then what is still open of it."""
    return read_rows(
        engine,
        "SELECT * FROM run_timeline WHERE run_id = :id ORDER BY step, branch, attempt",
        id=run_id,
    )


def events(engine: Engine, batch_id: int, limit: int = 100, *, runs: bool = False) -> list[dict[str, Any]]:
    """The newest events of a batch, in order. `runs`: with those of each retried run. Raises NotFound for a
    batch that is not there and has left no event."""
    found = read_rows(
        engine,
        """
        SELECT * FROM (
               SELECT id, batch_id, run_id, at, actor, action, reason, detail FROM events
                WHERE batch_id = :id AND (:runs OR run_id IS NULL OR action <> 'retried')
                ORDER BY id DESC LIMIT :limit) AS newest
         ORDER BY id
        """,
        id=batch_id,
        limit=limit,
        runs=runs,
    )
    if not found:
        progress(engine, batch_id)  # raises NotFound
    return found


def open_claims(engine: Engine, run_id: int) -> list[dict[str, Any]]:
    """What a run is waiting for at this moment."""
    return read_rows(
        engine,
        "SELECT step, branch, node, status, attempt, worker, started_at, not_before FROM claims"
        " WHERE run_id = :id ORDER BY step, branch",
        id=run_id,
    )


# the first word of a query, after comments and opening brackets
_QUERY = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/|\()*(?:select|with|values|table|explain|show)\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Table:
    """The result of a query: column names, and the rows as tuples."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


READER = "cragline_reader"  # may read the schema `history` and nothing else; made by the migrations
_CHANGES_ROLE = re.compile(r"\bset_config\b", re.IGNORECASE)


def query(
    engine: Engine, sql: str, *, limit: int | None = None, timeout: float = 300, reader: str = READER
) -> Table:
    """Run one read-only query over the schema `history`, for at most `timeout` seconds. Raises CraglineError
    with Postgres's own words.

    Only queries are let through, in a read-only transaction that is rolled back, and the extended protocol
    refuses a second statement that could end it. The query runs as `reader`, where that role is and the
    login is in it: it reads no other table, and stops no other session. This keeps honest queries from
    surprises; a hostile one could hide a `set_config` that takes the login's own reading rights back, so
    strangers are given a login of their own in that group. Without the role the login itself reads.
    """
    if needs_cleaning(sql):
        raise CraglineError("The query holds NUL, or bytes that are no UTF-8.")
    if not _QUERY.match(sql):
        raise CraglineError("Only queries can be asked here: SELECT, WITH, VALUES, TABLE, EXPLAIN or SHOW.")
    if _CHANGES_ROLE.search(sql):
        raise CraglineError("set_config cannot be used here.")
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        try:
            with raw.transaction(force_rollback=True), raw.cursor() as cursor:
                role = _narrow(cursor, reader, timeout)
                try:
                    cursor.execute(sql.strip().rstrip(";"), prepare=True)
                except psycopg.Error:
                    if raw.pgconn.transaction_status == TransactionStatus.ACTIVE:
                        raise CraglineError("COPY cannot be used here; --csv prints CSV.") from None
                    raise
                if cursor.description is None:
                    raise CraglineError("That statement returns no rows; only queries can be asked here.")
                columns = [column.name for column in cursor.description]
                rows = cursor.fetchall() if limit is None else cursor.fetchmany(limit)
                if cursor.execute("SELECT current_user").fetchone() != (role,):
                    raise CraglineError("The query took another role, so its rows are not shown.")
                return Table(columns, rows)
        except psycopg.errors.QueryCanceled:
            raise CraglineError(
                f"The query took longer than {timeout:g} seconds. --timeout gives it more."
            ) from None
        except psycopg.Error as error:
            raise CraglineError(_said(error)) from None
        finally:
            # An advisory lock or a COPY that the query began must not outlive it in the pool.
            connection.invalidate()


def _narrow(cursor: "psycopg.Cursor[Any]", reader: str, timeout: float) -> Any:
    """Make the transaction read-only, bounded, and the reader's. Returns the role that it runs as."""
    cursor.execute("SET TRANSACTION READ ONLY")
    cursor.execute("SELECT set_config('statement_timeout', %s, true)", (f"{max(1, int(timeout * 1000))}",))
    cursor.execute("SET LOCAL search_path = history")
    cursor.execute(
        "SELECT rolname FROM pg_roles WHERE rolname = %s"
        "   AND pg_has_role(oid, CASE WHEN %s >= 160000 THEN 'SET' ELSE 'MEMBER' END)"
        " UNION ALL SELECT 'pg_read_all_data' FROM pg_roles WHERE rolname = current_user AND rolsuper LIMIT 1",
        (reader, cursor.connection.info.server_version),
    )
    if (found := cursor.fetchone()) is not None:
        cursor.execute(pg_sql.SQL("SET LOCAL ROLE {}").format(pg_sql.Identifier(found[0])))
    row = cursor.execute("SELECT current_user").fetchone()
    assert row is not None
    return row[0]


_UNKNOWN_NAME = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)


def _said(error: psycopg.Error) -> str:
    diagnosis = getattr(error, "diag", None)
    message = getattr(diagnosis, "message_primary", None) or str(error).splitlines()[0]
    hint = getattr(diagnosis, "message_hint", None)
    if hint is None and isinstance(error, _UNKNOWN_NAME):
        hint = "docs/history.md lists the views and their columns."
    return f"Postgres says: {message}." + (f" Hint: {hint}" if hint else "")


def original_keys(engine: Engine, batch_id: int) -> list[str]:
    """The keys of a batch of JSON objects, in the order in which they first appear."""
    found = read_rows(
        engine,
        """
        SELECT key
          FROM (SELECT DISTINCT ON (pair.key) pair.key, batch_rows.row_number, pair.place
                  FROM batch_rows,
                       json_object_keys(batch_rows.original) WITH ORDINALITY AS pair (key, place)
                 WHERE batch_rows.batch_id = :id AND json_typeof(batch_rows.original) = 'object'
                 ORDER BY pair.key, batch_rows.row_number, pair.place) AS first
         ORDER BY row_number, place
        """,
        id=batch_id,
    )
    return [row["key"] for row in found]


def widest_row(engine: Engine, batch_id: int) -> int:
    """The most cells that a row of a CSV batch has; rows may have more than the header."""
    found = read_rows(
        engine,
        "SELECT coalesce(max(json_array_length(original)), 0) AS cells FROM batch_rows WHERE batch_id = :id",
        id=batch_id,
    )
    return int(found[0]["cells"])
