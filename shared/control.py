"""What people and programs do to batches: pause, resume, cancel, reprioritise (`shared.rework`: retry, fork).

One code path for the command line, the HTTP API and Cragline itself. Each act locks the batch's row, so that
acts come one after the other, changes rows only, and leaves one event with who, when and why. Messages that
are under way find out at their claim.

Everywhere: `where` is an engine (the act is a transaction of its own) or the session of a transaction that
it becomes part of; `actor` is who does it; NotFound when there is no such batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine, func, insert, select, text, update
from sqlalchemy.orm import Session

from shared.budget import Caps, set_caps
from shared.clean import clean_json, clean_text
from shared.db import transaction
from shared.errors import Conflict, NotFound, UsageError
from shared.statuses import UNENDED, BatchStatus, ClaimStatus, EventAction, RunStatus
from shared.tables import Batch, Claim, Event, Run

SYSTEM = "system"  # the actor of what Cragline does by itself
WEIGHTS = (0.01, 100.0)
PRIORITIES = (-1000, 1000)


@dataclass(frozen=True)
class Done:
    """What an act came to. `changed` is false where it was so already; `runs` is how many runs it touched."""

    batch_id: int
    action: str
    status: str  # of the batch, now
    changed: bool
    runs: int = 0
    reason: str | None = None


@contextmanager
def within(where: Engine | Session) -> Iterator[Session]:
    """The given session, or one whose work is committed at the end of the block."""
    if isinstance(where, Session):
        yield where
        return
    with transaction(where) as session:
        yield session


def lock_batch(session: Session, batch_id: int) -> Batch:
    """The batch, its row locked against other acts, but not against new rows that refer to it."""
    batch = session.scalars(
        select(Batch)
        .where(Batch.id == batch_id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    ).one_or_none()
    if batch is None:
        raise NotFound(f"There is no batch {batch_id}. `cragline batch list` shows those there are.")
    return batch


def add_event(
    session: Session,
    batch_id: int,
    action: EventAction,
    actor: str,
    reason: str | None = None,
    *,
    run_id: int | None = None,
    detail: dict[str, Any] | None = None,
) -> None:
    """One row of `events`, in the transaction of what it tells."""
    session.execute(
        insert(Event).values(
            batch_id=batch_id,
            run_id=run_id,
            action=action,
            actor=clean_text(actor),
            reason=None if reason is None else clean_text(reason),
            detail=clean_json(detail or {}),
        )
    )


def refuse_ended(batch: Batch) -> None:
    if batch.status not in UNENDED:
        when = f"{batch.ended_at:%Y-%m-%d %H:%M} UTC"
        if batch.status == BatchStatus.CANCELLED:
            raise Conflict(f"Batch {batch.id} was cancelled ({when}). {take_up(batch.id)}")
        raise Conflict(f"Batch {batch.id} has ended ({when}).")


def take_up(batch_id: int) -> str:
    """What helps whoever wants a cancelled batch to go on."""
    return f"`cragline batch retry {batch_id} --disposition cancelled` takes it up again."


def pause(where: Engine | Session, batch_id: int, *, actor: str, reason: str | None = None) -> Done:
    """Begin nothing new of a batch; what is under way ends its node. Raises Conflict for one that is over.

    A batch that is paused already keeps its reason.
    """
    with within(where) as session:
        batch = lock_batch(session, batch_id)
        refuse_ended(batch)
        if batch.status == BatchStatus.PAUSED:
            return Done(batch_id, EventAction.PAUSED, batch.status, False, reason=batch.pause_reason)
        said = clean_text(reason or f"paused by {actor}")
        batch.status, batch.pause_reason = BatchStatus.PAUSED, said
        session.flush()
        add_event(session, batch_id, EventAction.PAUSED, actor, reason)
        return Done(batch_id, EventAction.PAUSED, batch.status, True, reason=said)


def resume(
    where: Engine | Session, batch_id: int, *, actor: str, reason: str | None = None, caps: Caps | None = None
) -> Done:
    """Go on with a paused batch; what waited is due at once. Raises Conflict for one that is over.

    `caps` are given to it first, as by `budget.set_caps`, also to one that is open.
    """
    with within(where) as session:
        batch = lock_batch(session, batch_id)
        refuse_ended(batch)
        given = {}
        if caps is not None and caps.any:
            set_caps(session, batch_id, caps)
            given = {name: value for name, value in asdict(caps).items() if value is not None}
        if batch.status == BatchStatus.OPEN:
            if given:
                add_event(session, batch_id, EventAction.RESUMED, actor, reason, detail=given)
            return Done(batch_id, EventAction.RESUMED, batch.status, False)
        paused_for = batch.pause_reason
        batch.status, batch.pause_reason = BatchStatus.OPEN, None
        session.flush()
        waiting = session.execute(
            update(Claim)
            .where(
                Claim.status == ClaimStatus.READY,
                Claim.run_id == Run.id,
                Run.batch_id == batch_id,
                Run.status == RunStatus.RUNNING,
            )
            .values(
                wake_at=func.greatest(func.now(), func.coalesce(Claim.not_before, func.now())),
                failing_since=None,  # the time of the pause is not one in which a provider failed
            )
            .returning(Claim.run_id)
            .execution_options(synchronize_session=False)
        ).all()
        add_event(
            session,
            batch_id,
            EventAction.RESUMED,
            actor,
            reason,
            detail={"was_paused_for": paused_for, **given},
        )
        return Done(batch_id, EventAction.RESUMED, batch.status, True, runs=len({row[0] for row in waiting}))


def cancel(where: Engine | Session, batch_id: int, *, actor: str, reason: str | None = None) -> Done:
    """End a batch and all its open runs as cancelled. Raises Conflict for one that is over.

    Ended runs keep their answers. With an engine the batch is first paused in a transaction of its own:
    cancelling a million runs takes a while, and no call is to be paid for in it.
    """
    if isinstance(where, Engine):
        with transaction(where) as session:
            batch = lock_batch(session, batch_id)
            refuse_ended(batch)
            batch.status, batch.pause_reason = BatchStatus.PAUSED, clean_text(f"being cancelled by {actor}")
    with within(where) as session:
        batch = lock_batch(session, batch_id)
        refuse_ended(batch)
        said = clean_text(f"cancelled by {actor}" + (f": {reason}" if reason else ""))
        batch.status, batch.ended_at, batch.pause_reason = BatchStatus.CANCELLED, func.clock_timestamp(), None
        session.flush()
        runs = session.scalar(text(_CANCEL_RUNS), {"batch": batch_id, "reason": said}) or 0
        session.execute(text(_LAST_ROWS), {"batch": batch_id, "why": said})
        session.execute(text(_DELETE_CLAIMS), {"batch": batch_id})
        add_event(session, batch_id, EventAction.CANCELLED, actor, reason, detail={"runs": runs})
        return Done(batch_id, EventAction.CANCELLED, batch.status, True, runs=runs, reason=said)


# Runs before their claims: whoever needs both takes them in this order.
_CANCEL_RUNS = """
WITH cancelled AS (
    UPDATE runs SET status = 'cancelled', reason = :reason, ended_at = clock_timestamp()
     WHERE batch_id = :batch AND status IN ('pending', 'running') RETURNING id)
SELECT count(*) FROM cancelled
"""
# Each open branch gets a last row: what was under way with what its stored calls cost, the rest as not begun.
_LAST_ROWS = """
WITH open_claims AS (
    SELECT claims.run_id, claims.step, claims.branch, claims.node, claims.came_from, runs.round, batches.month,
           claims.status = 'running' AS began,
           CASE WHEN claims.status = 'running' THEN claims.attempt ELSE claims.attempt + 1 END AS attempt,
           CASE WHEN claims.status = 'running' THEN claims.started_at END AS started_at,
           CASE WHEN claims.status = 'running' THEN claims.worker END AS worker,
           CASE WHEN claims.status = 'running' THEN claims.task_id END AS task_id
      FROM claims
      JOIN runs ON runs.id = claims.run_id
      JOIN batches ON batches.id = runs.batch_id
     WHERE runs.batch_id = :batch AND claims.status IN ('ready', 'running')
     ORDER BY claims.run_id, claims.step, claims.branch
       FOR UPDATE OF claims)
INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, round, node, status, came_from, goes_to,
                         started_at, ended_at, duration_ms, worker, task_id, input_tokens, output_tokens,
                         cost_usd, error)
SELECT month, run_id, :batch, step, branch, attempt, round, node,
       CASE WHEN began THEN 'cancelled' ELSE 'skipped' END, came_from, '{}',
       times.began_at, times.ended_at, extract(epoch FROM times.ended_at - times.began_at) * 1000,
       worker, task_id, calls.input_tokens, calls.output_tokens,
       CASE WHEN calls.cost_usd IS NULL THEN searches.cost_usd
            ELSE calls.cost_usd + coalesce(searches.cost_usd, 0) END,
       CASE WHEN began THEN '' ELSE 'not begun: ' END || :why
  FROM open_claims
 CROSS JOIN (SELECT clock_timestamp() AS at) AS clock
 CROSS JOIN LATERAL (
       SELECT coalesce(started_at, clock.at) AS began_at, greatest(started_at, clock.at) AS ended_at) AS times
 CROSS JOIN LATERAL (
       SELECT sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
         FROM model_calls AS paid
        WHERE (paid.run_id, paid.step, paid.branch, paid.attempt)
            = (open_claims.run_id, open_claims.step, open_claims.branch, open_claims.attempt)) AS calls
 CROSS JOIN LATERAL (
       SELECT sum(cost_usd) AS cost_usd
         FROM web_searches AS paid
        WHERE (paid.run_id, paid.step, paid.branch, paid.attempt)
            = (open_claims.run_id, open_claims.step, open_claims.branch, open_claims.attempt)) AS searches
"""
_DELETE_CLAIMS = "DELETE FROM claims USING runs WHERE runs.id = claims.run_id AND runs.batch_id = :batch"


@dataclass(frozen=True)
class Share:
    """How a batch shares the window with others; None leaves a value as it is. Raises UsageError.

    `priority`: while a batch has something to begin, those below it get no free place. `weight`: among equals,
    2 gets twice the places of 1. `max_in_flight`: runs of it at once; 0 takes the cap away.
    """

    priority: int | None = None
    weight: float | None = None
    max_in_flight: int | None = None

    def __post_init__(self) -> None:
        low, high = PRIORITIES
        if self.priority is not None and not low <= self.priority <= high:
            raise UsageError(
                f"The priority must be a whole number from {low} to {high}, not {self.priority}."
            )
        least, most = WEIGHTS
        if self.weight is not None and not least <= self.weight <= most:
            raise UsageError(f"The weight must be from {least} to {most:.0f}, not {self.weight}.")
        if self.max_in_flight is not None and not 0 <= self.max_in_flight < 2**31:
            raise UsageError(f"A cap of {self.max_in_flight} runs in flight cannot be; 0 means no cap.")

    def columns(self) -> dict[str, Any]:
        """What is given, as columns of `batches`."""
        given: dict[str, Any] = {}
        if self.priority is not None:
            given["priority"] = self.priority
        if self.weight is not None:
            given["weight"] = round(self.weight, 2)
        if self.max_in_flight is not None:
            given["max_in_flight"] = self.max_in_flight or None
        return given


def reprioritise(
    where: Engine | Session, batch_id: int, share: Share, *, actor: str, reason: str | None = None
) -> Done:
    """Change how a batch shares the window. Raises Conflict for one that is over, UsageError for no change."""
    wanted = share.columns()
    if not wanted:
        raise UsageError("Name a priority, a weight or a cap on runs in flight.")
    with within(where) as session:
        batch = lock_batch(session, batch_id)
        refuse_ended(batch)
        changes = {
            name: {"was": getattr(batch, name), "is": value}
            for name, value in wanted.items()
            if getattr(batch, name) != value
        }
        if not changes:
            return Done(batch_id, EventAction.REPRIORITISED, batch.status, False)
        for name in changes:
            setattr(batch, name, wanted[name])
        session.flush()
        add_event(session, batch_id, EventAction.REPRIORITISED, actor, reason, detail=changes)
        return Done(batch_id, EventAction.REPRIORITISED, batch.status, True)
