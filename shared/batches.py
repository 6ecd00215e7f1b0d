"""Submitting a batch: rows are COPYed, so that memory does not grow with the file, in one transaction, so
that a file is taken whole or not at all."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b
from typing import Any, Protocol

import psycopg
from psycopg import Cursor
from psycopg.sql import SQL, Identifier, Placeholder
from psycopg.types.json import Jsonb
from sqlalchemy import Engine, func, select, text
from sqlalchemy.exc import OperationalError

from shared.budget import Caps, check_caps
from shared.clean import clean_json, clean_text, question_key
from shared.control import Share
from shared.db import transaction
from shared.errors import CraglineError, DimensionMismatch, IntakeError, NotFound
from shared.plan import Plan
from shared.tables import Collection, IngestedDocument


class Row(Protocol):
    """One row of a file of questions, as `api.intake` reads it."""

    @property
    def number(self) -> int: ...
    @property
    def question(self) -> str | None: ...
    @property
    def original(self) -> Any: ...
    @property
    def notes(self) -> list[str]: ...


@dataclass(frozen=True)
class Submitted:
    batch_id: int
    rows: int
    runs: int
    empty_rows: int
    duplicate_rows: int
    repeated: bool = False  # an earlier request with the same idempotency key had submitted it already


@dataclass(frozen=True)
class Request:
    """Whose batch it is (None: the command line's), who is told of its end, and its idempotency key.

    With a `key`, the same `owner`, key and `body_hash` again find the batch that is there.
    """

    owner: str | None
    callback_url: str | None = None
    key: str | None = None
    body_hash: str = ""

    def columns(self) -> dict[str, Any]:
        return {"owner": self.owner, "callback_url": self.callback_url}


class OtherBody(CraglineError):
    """An idempotency key was used before, with another body."""


def check_collection(engine: Engine, plan: Plan) -> int:
    """The number of documents in the plan's collection.

    Raises NotFound for a collection that is absent or empty, DimensionMismatch for one that was embedded
    by another model than the plan's: its answers would be noise.
    """
    name = plan.collection
    remedy = f"Fill it with `cragline ingest PATH --collection {name}`."
    with transaction(engine) as session:
        collection = session.get(Collection, name)
        if collection is None:
            known = ", ".join(session.scalars(select(Collection.name).order_by(Collection.name)))
            there = f"There are: {known}." if known else "There is none yet."
            raise NotFound(f"There is no collection {name!r}. {there} {remedy}")
        if collection.embedding_model != plan.embedding_model:
            raise DimensionMismatch(
                f"Collection {name!r} was embedded by {collection.embedding_model} ({collection.dimension} "
                f"dimensions), but {plan.embedding_model} is in use. Set CRAGLINE_EMBEDDINGS (and "
                "CRAGLINE_EMBEDDING_MODEL) to the former, or ingest into another collection."
            )
        count = session.scalar(select(func.count()).where(IngestedDocument.collection == name)) or 0
    if not count:
        raise NotFound(f"Collection {name!r} is empty. {remedy}")
    return count


_STAGING = """
CREATE TEMPORARY TABLE staging (
    row_number int, question text, key uuid, original json, notes text[]) ON COMMIT DROP
"""
_RUNS = """
INSERT INTO runs (batch_id, first_row, question)
SELECT %(batch)s, row_number, question
  FROM (SELECT DISTINCT ON (key) row_number, question FROM staging WHERE key IS NOT NULL
         ORDER BY key, row_number) AS first
 ORDER BY row_number
"""
_ROWS = """
INSERT INTO batch_rows (batch_id, row_number, run_id, original, notes)
SELECT %(batch)s, numbered.row_number, runs.id, numbered.original, numbered.notes
  FROM (SELECT *, CASE WHEN key IS NOT NULL THEN min(row_number) OVER (PARTITION BY key) END AS first_row
          FROM staging) AS numbered
  LEFT JOIN runs ON runs.batch_id = %(batch)s AND runs.first_row = numbered.first_row
"""


@dataclass(frozen=True)
class Terms:
    """On what terms a batch is worked on, apart from its plan."""

    share: Share = field(default_factory=Share)
    submitted_by: str | None = None
    caps: Caps = field(default_factory=Caps)

    def columns(self) -> dict[str, Any]:
        return {
            "submitted_by": self.submitted_by and clean_text(self.submitted_by),
            "max_cost_usd": self.caps.max_cost_usd,
            "max_tokens": self.caps.max_tokens,
            **self.share.columns(),
        }


def submit(
    engine: Engine,
    plan: Plan,
    name: str,
    source: dict[str, Any],
    rows: Iterable[Row],
    terms: Terms | None = None,
    request: Request | None = None,
) -> Submitted:
    """Store a batch with all its rows; returns its id and counts.

    `source` says how the file was understood (JSON value); `terms` left out are the usual ones. What `rows`
    raises passes through, and then nothing is stored. Raises IntakeError when no row has a question,
    UsageError for caps that cannot be held, and OtherBody for an idempotency key that was used for something
    else.
    """
    terms = terms or Terms()
    check_caps(plan, terms.caps)
    month = ensure_partition(engine)
    with engine.connect() as connection:
        driver: psycopg.Connection[Any] | None = (
            connection.connection.driver_connection
        )  # COPY is the driver's
        assert driver is not None
        with driver.transaction(), driver.cursor() as cursor:
            earlier = _earlier(cursor, request)
            if earlier is not None:
                return earlier
            extra = terms.columns() | (request.columns() if request else {})
            if request is not None and request.owner is not None:
                plan = plan.model_copy(update={"reuse_owner": request.owner})
            batch_id = _add_batch(cursor, plan, name, source, month, extra)
            if terms.caps.any:
                cursor.execute("INSERT INTO budgets (batch_id) VALUES (%s)", (batch_id,))
            submitted = _add_rows(cursor, batch_id, source, rows)
            _close_request(cursor, batch_id, request)
            cursor.execute(_EVENT, {"batch": batch_id, "actor": terms.submitted_by or "unknown"})
            return submitted


def submitted_before(engine: Engine, request: Request) -> Submitted | None:
    """What an earlier request with the same key submitted. Raises OtherBody."""
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.transaction(), driver.cursor() as cursor:
            return _stored(cursor, request)


def _earlier(cursor: "Cursor[Any]", request: Request | None) -> Submitted | None:
    """Take the request's key for this transaction; or what the request submitted that had it before.

    A second request waits here until the first has committed, or takes over when it is rolled back.
    """
    if request is None or request.key is None:
        return None
    cursor.execute(
        "INSERT INTO idempotency_keys (owner, key, body_hash) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (request.owner, request.key, request.body_hash),
    )
    return None if cursor.rowcount else _stored(cursor, request)


def _stored(cursor: "Cursor[Any]", request: Request) -> Submitted | None:
    cursor.execute(
        "SELECT body_hash, batches.id, row_count, run_count, (SELECT count(*) FROM batch_rows"
        " WHERE batch_rows.batch_id = batches.id AND run_id IS NULL) FROM idempotency_keys"
        " JOIN batches ON batches.id = batch_id WHERE idempotency_keys.owner = %s AND key = %s",
        (request.owner, request.key),
    )
    found = cursor.fetchone()
    if found is None:
        return None
    body_hash, batch_id, rows, runs, empty = found
    if body_hash != request.body_hash:
        raise OtherBody(
            f"This idempotency key was used before, for batch {batch_id} with other content. "
            "Choose a new key for a new batch."
        )
    return Submitted(batch_id, rows, runs, empty, rows - empty - runs, repeated=True)


def _close_request(cursor: "Cursor[Any]", batch_id: int, request: Request | None) -> None:
    if request is not None and request.key is not None:
        cursor.execute(
            "UPDATE idempotency_keys SET batch_id = %s WHERE owner = %s AND key = %s",
            (batch_id, request.owner, request.key),
        )


_EVENT = """
INSERT INTO events (batch_id, actor, action, detail)
SELECT id, %(actor)s, 'submitted', jsonb_build_object('rows', row_count, 'runs', run_count)
  FROM batches WHERE id = %(batch)s
"""


def _add_batch(
    cursor: "Cursor[Any]", plan: Plan, name: str, source: dict[str, Any], month: date, extra: dict[str, Any]
) -> int:
    """The batch's row, still without its counts: its id."""
    values: dict[str, Any] = {
        "name": clean_text(name),
        "pipeline": plan.pipeline,
        "collection": plan.collection,
        "plan": Jsonb(plan.model_dump()),
        "source": Jsonb(clean_json(source)),
        "row_count": 0,
        "run_count": 0,
        "month": month,
        **extra,
    }
    columns = SQL(", ").join(map(Identifier, values))
    places = SQL(", ").join(map(Placeholder, values))
    cursor.execute(SQL("INSERT INTO batches ({}) VALUES ({}) RETURNING id").format(columns, places), values)
    found = cursor.fetchone()
    assert found is not None
    return int(found[0])


def _add_rows(cursor: "Cursor[Any]", batch_id: int, source: dict[str, Any], rows: Iterable[Row]) -> Submitted:
    cursor.execute(_STAGING)
    total = empty = 0
    with cursor.copy("COPY staging (row_number, question, key, original, notes) FROM STDIN") as copy:
        for record in _records(rows):
            total += 1
            empty += record[1] is None
            copy.write_row(record)
    if total == empty:
        raise IntakeError(_no_question(source, total))
    cursor.execute(_RUNS, {"batch": batch_id})
    runs = cursor.rowcount
    cursor.execute(_ROWS, {"batch": batch_id})
    cursor.execute("UPDATE batches SET row_count = %s, run_count = %s WHERE id = %s", (total, runs, batch_id))
    return Submitted(batch_id, total, runs, empty, total - empty - runs)


def _no_question(source: dict[str, Any], total: int) -> str:
    file, column = source.get("file", "The file"), source.get("question_column")
    if not total:
        return f"{file}: there is no row in it. It needs at least one question."
    place = f" in column {column!r}" if column else ""
    return f"{file}: none of the {total} rows has a question{place}. Name another column with --column."


def _records(rows: Iterable[Row]) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        question = row.question
        key = None
        if question is not None:
            key = blake2b(question_key(question).encode(), digest_size=16).hexdigest()
        yield row.number, question, key, json.dumps(row.original, ensure_ascii=False), row.notes


def ensure_partition(engine: Engine) -> date:
    """Make sure of this month's partition of `transitions`, in a transaction of its own, because making
    one locks the parent for as long as the transaction lasts. Returns the month's first day (UTC)."""
    try:
        with transaction(engine) as session:
            month = session.scalar(text("SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date"))
            session.execute(text("SELECT ensure_transitions_partition(:month)"), {"month": month})
    except OperationalError as error:
        raise database_down(error) from None
    assert isinstance(month, date)
    return month


def database_down(_error: OperationalError) -> CraglineError:
    """The driver's own words may hold the address with its user; say what helps instead."""
    return CraglineError(
        "The database does not answer, so nothing was submitted. See `cragline doctor`; with the embedded "
        "stack, `cragline up -d` starts it."
    )
