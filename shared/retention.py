"""Dropping what is old: whole months of batches, with their history.

The history is append-only; its rows go only with their partition, which holds the transitions of all batches
submitted in a month. So a month goes as a whole, once every batch of it is over and old enough, and no open
fork builds on it. The partition goes first, which is what keeps others from taking the batches up again; then
the other rows, in chunks. Killed in between, the next call goes on from there. One event of each batch stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from shared.clean import clean_text
from shared.control import add_event
from shared.db import transaction
from shared.errors import Conflict, CraglineError
from shared.statuses import EventAction
from shared.tables import Base

CHUNK = 5_000  # rows deleted in one transaction
_KEPT_APART = ("batches", "runs", "transitions", "events")


@dataclass(frozen=True)
class OldBatch:
    batch_id: int
    name: str
    status: str
    runs: int
    submitted_at: datetime
    ended_at: datetime


@dataclass(frozen=True)
class Month:
    """`month` is its first day; `blocked_by` says why it has to stay, "" if it may go."""

    month: date
    batches: list[OldBatch]
    blocked_by: str


_MONTHS = """
SELECT to_date(substring(relname FROM '\\d+$'), 'YYYYMM') AS month
  FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
 WHERE inhparent = 'transitions'::regclass
UNION
SELECT month FROM batches
"""
_BLOCKED = """
SELECT CASE
       WHEN :month >= date_trunc('month', now() AT TIME ZONE 'UTC') THEN 'the month is not over'
       WHEN EXISTS (SELECT FROM batches WHERE month = :month AND ended_at IS NULL)
       THEN 'open: batch ' || (SELECT min(id) FROM batches WHERE month = :month AND ended_at IS NULL)
       WHEN EXISTS (SELECT FROM batches WHERE month = :month AND ended_at >= :before)
       THEN 'too young: batch ' || (SELECT min(id) FROM batches WHERE month = :month AND ended_at >= :before)
       WHEN EXISTS (SELECT FROM runs
                     WHERE forked_from IS NOT NULL AND status IN ('pending', 'running')
                       AND inherited @> jsonb_build_array(jsonb_build_object('month', CAST(:month AS date))))
       THEN 'an open fork builds on it'
       ELSE '' END
"""


def months(engine: Engine, before: datetime) -> list[Month]:
    """Every month there is anything of, oldest first. `before`: batches must have ended by then."""
    with transaction(engine) as session:
        found = sorted(session.scalars(text(_MONTHS)).all())
        return [Month(month, _batches(session, month), _blocked(session, month, before)) for month in found]


def _blocked(session: Session, month: date, before: datetime) -> str:
    return str(session.scalar(text(_BLOCKED), {"month": month, "before": before}))


def _batches(session: Session, month: date) -> list[OldBatch]:
    rows = session.execute(
        text(
            "SELECT id, name, status, run_count, submitted_at, ended_at FROM batches WHERE month = :month ORDER BY id"
        ),
        {"month": month},
    ).all()
    return [OldBatch(*row) for row in rows]


def is_dropped(session: Session, month: date) -> bool:
    """Whether the transitions of batches submitted in this month are gone."""
    return session.scalar(text("SELECT to_regclass(:name)"), {"name": _partition(month)}) is None


def _partition(month: date) -> str:
    return f"transitions_p{month:%Y%m}"


def drop(
    engine: Engine,
    month: date,
    before: datetime,
    *,
    actor: str,
    reason: str | None = None,
    archive: Callable[[int], str] | None = None,
) -> dict[str, int]:
    """Drop a month; returns how many rows went of each table (transitions go uncounted, with their partition).

    `archive` is called with each batch's id first, and returns where it put it; what it raises ends this
    before anything is dropped. Raises Conflict when the month has to stay after all.
    """
    with transaction(engine) as session:
        _refuse_blocked(session, month, before)
        gone = is_dropped(session, month)
        batch_ids = [batch.batch_id for batch in _batches(session, month)]
    places = {batch_id: archive(batch_id) for batch_id in batch_ids} if archive and not gone else {}
    if not gone:
        _drop_partition(engine, month, before, places, actor, reason)
    deleted: dict[str, int] = {}
    for batch_id in batch_ids:
        for table, count in _delete_batch(engine, batch_id).items():
            deleted[table] = deleted.get(table, 0) + count
    return deleted


def _refuse_blocked(session: Session, month: date, before: datetime) -> None:
    if blocked_by := _blocked(session, month, before):
        raise Conflict(f"{month:%Y-%m} stays: {blocked_by}.")


def _drop_partition(
    engine: Engine,
    month: date,
    before: datetime,
    places: dict[int, str],
    actor: str,
    reason: str | None,
) -> None:
    """The partition and the events, together. The batches' rows are locked first: a retry or a fork that is
    under way ends before the second look, and one that comes later finds the partition gone."""
    try:
        with transaction(engine) as session:
            session.execute(
                text("SELECT FROM batches WHERE month = :month ORDER BY id FOR UPDATE"), {"month": month}
            )
            _refuse_blocked(session, month, before)
            for batch in _batches(session, month):
                detail: dict[str, Any] = {
                    "name": batch.name,
                    "was": batch.status,
                    "runs": batch.runs,
                    "submitted_at": batch.submitted_at.isoformat(),
                    "ended_at": batch.ended_at.isoformat(),
                    "archive": clean_text(places.get(batch.batch_id, "")) or None,
                }
                add_event(session, batch.batch_id, EventAction.DROPPED, actor, reason, detail=detail)
            # Whoever waits for this lock keeps everybody behind it waiting too.
            session.execute(text("SET LOCAL lock_timeout = '2s'"))
            session.execute(text(f'DROP TABLE "{_partition(month)}"'))
    except OperationalError as error:
        if "LockNotAvailable" not in type(error.orig).__name__:
            raise
        raise CraglineError(
            f"{month:%Y-%m} is still there: the history is being read or written all the time. Try again later."
        ) from None


def _delete_batch(engine: Engine, batch_id: int) -> dict[str, int]:
    """All other rows of a batch: those that refer to runs first, the batch itself last."""
    tables = [
        table.name
        for table in reversed(Base.metadata.sorted_tables)
        if "batch_id" in table.c and table.name not in _KEPT_APART
    ]
    deleted = {table: _delete_chunks(engine, table, "batch_id = :batch", batch_id) for table in tables}
    deleted["events"] = _delete_chunks(
        engine, "events", "batch_id = :batch AND action <> 'dropped'", batch_id
    )
    # `run_count` goes down with the runs, so that none of them ever counts as lost.
    count = "UPDATE batches SET run_count = run_count - :gone WHERE id = :batch"
    deleted["runs"] = _delete_chunks(engine, "runs", "batch_id = :batch", batch_id, count)
    deleted["batches"] = _delete_chunks(engine, "batches", "id = :batch", batch_id)
    return deleted


def _delete_chunks(engine: Engine, table: str, which: str, batch_id: int, also: str | None = None) -> int:
    chunk = text(
        f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE {which} LIMIT :chunk))"  # noqa: S608 - our own names
        " RETURNING 1"
    )
    total = 0
    while True:
        with transaction(engine) as session:
            gone = len(session.execute(chunk, {"batch": batch_id, "chunk": CHUNK}).all())
            if gone and also:
                session.execute(text(also), {"batch": batch_id, "gone": gone})
        total += gone
        if gone < CHUNK:
            return total
