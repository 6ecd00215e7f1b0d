"""Doing runs again: `retry` takes ended runs up in their batch, `fork` starts a new one from the middle of another.

The history is append-only, so neither changes what was recorded. A retried run goes into its next round: at
the step where it failed, with attempts that go on counting and what its other branches brought, or from the
start, with steps that go on counting. Where exactly it begins is worked out at its admission
(`workers.runner.entry`), which knows the graphs.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from shared.batches import ensure_partition
from shared.clean import clean_json, clean_text
from shared.control import Done, add_event, lock_batch, take_up, within
from shared.course import Course, Segment
from shared.errors import Conflict, NotFound, UsageError
from shared.plan import Plan, with_params
from shared.retention import is_dropped
from shared.settings import Settings
from shared.statuses import DISPOSITIONS, UNENDED, BatchStatus, EventAction, RunStatus
from shared.tables import Batch, BatchRow, Run


@dataclass(frozen=True)
class Chosen:
    """Which ended runs of a batch: those that fit everything that is given. Raises UsageError.

    `error_class`: the class of the error (`TransientError`) or its short word (`rate_limited`), as run and
    history name them. `node`: at which they ended. `since`: they ended then or later.
    """

    dispositions: tuple[str, ...] = (RunStatus.FAILED,)
    error_class: str | None = None
    node: str | None = None
    since: datetime | None = None

    def __post_init__(self) -> None:
        unknown = sorted(set(self.dispositions) - set(DISPOSITIONS))
        if unknown or not self.dispositions:
            raise UsageError(
                f"There is no disposition {', '.join(unknown) or 'named'}. There are: {', '.join(DISPOSITIONS)}."
            )
        if self.since is not None and self.since.tzinfo is None:
            raise UsageError("The time needs a time zone.")

    def __str__(self) -> str:
        parts = [" or ".join(name.replace("_", " ") for name in self.dispositions)]
        parts += [f"with error {self.error_class}"] if self.error_class else []
        parts += [f"at node {self.node}"] if self.node else []
        parts += [f"ended since {self.since:%Y-%m-%d %H:%M %Z}"] if self.since else []
        return ", ".join(parts)


_CHOSEN = """
  FROM runs
 WHERE runs.batch_id = :batch AND runs.status = ANY (:dispositions)
   AND (CAST(:since AS timestamptz) IS NULL OR runs.ended_at >= :since)
   -- `error` is `node: word or class: message`
   AND (CAST(:error_class AS text) IS NULL
        OR split_part(runs.error, ': ', 2) = :error_class
        OR EXISTS (SELECT FROM transitions
                    WHERE transitions.month = :month AND transitions.run_id = runs.id
                      AND transitions.step = runs.step AND transitions.round = runs.round
                      AND transitions.status = 'failed' AND transitions.error_class = :error_class))
   AND (CAST(:node AS text) IS NULL
        OR split_part(runs.error, ': ', 1) = :node
        OR EXISTS (SELECT FROM transitions
                    WHERE transitions.month = :month AND transitions.run_id = runs.id
                      AND transitions.step = runs.step AND transitions.round = runs.round
                      AND transitions.node = :node
                      AND (runs.status <> 'failed' OR transitions.status = 'failed')))
"""
# A run that ended at its own end has no failed node; one that had not begun its course has no step to enter again.
_RETRY = f"""
WITH chosen AS (
    SELECT runs.id, runs.status, runs.error, runs.reason,
           (NOT :from_failed_node OR runs.status IN ('answered', 'gave_up')) AS anew
    {_CHOSEN}
       FOR NO KEY UPDATE),
again AS (
    UPDATE runs
       SET status = 'pending', round = runs.round + 1, answer = NULL, reason = NULL, error = NULL, sources = NULL,
           web_used = NULL, notes = '{{}}', ended_at = NULL,
           first_step = CASE WHEN chosen.anew THEN runs.step + 1 ELSE runs.first_step END
      FROM chosen WHERE runs.id = chosen.id
    RETURNING runs.id, runs.round, greatest(runs.step, runs.first_step) AS step, chosen.status, chosen.error,
              chosen.reason)
INSERT INTO events (batch_id, run_id, actor, action, reason, detail)
SELECT :batch, id, :actor, 'retried', :reason,
       jsonb_strip_nulls(jsonb_build_object('round', round, 'from_step', step, 'was', status, 'error', error,
                                            'gave_up_because', reason))
  FROM again
RETURNING run_id
"""  # noqa: S608 - put together from our own text only


def retry(
    where: Engine | Session,
    batch_id: int,
    chosen: Chosen,
    *,
    actor: str,
    reason: str | None = None,
    from_failed_node: bool = True,
    dry_run: bool = False,
) -> Done:
    """Make ended runs of a batch pending again, and the batch open if it was over; a paused one stays paused.

    `from_failed_node`: failed and cancelled runs go on where they stopped; all others begin anew. `dry_run`
    only counts. Raises Conflict when no run fits, and for a cancelled batch unless cancelled runs are asked
    for by name: a retry that waited behind a cancel must not undo it.
    """
    with within(where) as session:
        batch = lock_batch(session, batch_id)
        _refuse_dropped(session, batch)
        if batch.status == BatchStatus.CANCELLED and RunStatus.CANCELLED not in chosen.dispositions:
            raise Conflict(f"Batch {batch_id} was cancelled. {take_up(batch_id)}")
        values: dict[str, Any] = {
            "batch": batch_id,
            "month": batch.month,
            "dispositions": list(chosen.dispositions),
            "error_class": chosen.error_class,
            "node": chosen.node,
            "since": chosen.since,
        }
        count = session.scalar(text(f"SELECT count(*) {_CHOSEN}"), values) or 0
        if not count:
            there = _failures(session, batch_id) if chosen.error_class or chosen.node else ""
            raise Conflict(f"There is nothing to retry: no run of batch {batch_id} is {chosen}.{there}")
        if dry_run:
            return Done(batch_id, EventAction.RETRIED, batch.status, False, runs=count)
        values |= {"from_failed_node": from_failed_node, "actor": clean_text(actor)}
        values["reason"] = None if reason is None else clean_text(reason)
        runs = len(session.execute(text(_RETRY), values).all())
        was = batch.status
        if was not in UNENDED:
            batch.status, batch.ended_at = BatchStatus.OPEN, None
            session.flush()
        detail = {"runs": runs, "chosen": str(chosen), "batch_was": was}
        detail["from"] = "failed node" if from_failed_node else "start"
        add_event(session, batch_id, EventAction.RETRIED, actor, reason, detail=detail)
        return Done(batch_id, EventAction.RETRIED, batch.status, True, runs=runs)


def _failures(session: Session, batch_id: int) -> str:
    """Which words would have found something."""
    query = """
    SELECT left(split_part(error, ': ', 1), 40) AS node, left(split_part(error, ': ', 2), 40) AS word, count(*) AS runs
      FROM runs WHERE batch_id = :b AND status = 'failed' GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 8
    """
    found = session.execute(text(query), {"b": batch_id}).all()
    named = ", ".join(f"{row.word} at {row.node} ({row.runs})" for row in found)
    return f" Those that failed: {named}." if named else ""


@dataclass(frozen=True)
class Forked:
    batch_id: int  # of the fork: a batch of its own, of one run
    run_id: int
    forked_from: int
    step: int
    collection: str
    params: dict[str, Any]  # those that differ


def fork(
    where: Engine | Session,
    run_id: int,
    step: int,
    settings: Settings,
    sets: dict[str, Any] | None = None,
    *,
    actor: str,
    reason: str | None = None,
) -> Forked:
    """A new run, in a batch of its own, that goes on from another's state before `step` with changed numbers.

    The other run, ended or not, is left as it is. Where the steps before lead is decided again, with the new
    numbers. Raises NotFound, Conflict for a step that the run did not reach in its present course, and
    UsageError for a wrong number.
    """
    if isinstance(where, Engine):
        ensure_partition(where)
    with within(where) as session:
        run, batch = _run_and_batch(session, run_id)
        _refuse_dropped(session, batch)
        if run.step < run.first_step:
            raise Conflict(f"Run {run_id} has not begun; there is nothing to fork from.")
        if not run.first_step <= step <= run.step:
            raise Conflict(
                f"Run {run_id} can be forked from its steps {run.first_step} to {run.step}, not {step}."
            )
        plan = Plan.model_validate(batch.plan)
        changed = with_params(plan, sets or {}, settings)
        new = _fork_batch(session, run, batch, changed, step, actor)
        differ = {key: value for key, value in changed.params.items() if plan.params.get(key) != value}
        detail = {"step": step, "params": differ, "new_batch": new.batch_id, "new_run": new.id}
        add_event(session, batch.id, EventAction.FORKED, actor, reason, run_id=run_id, detail=detail)
        origin = {"runs": 1, "forked_from": run_id, "step": step, "params": differ}
        add_event(session, new.batch_id, EventAction.SUBMITTED, actor, reason, detail=origin)
        return Forked(new.batch_id, new.id, run_id, step, batch.collection, differ)


def _run_and_batch(session: Session, run_id: int) -> tuple[Run, Batch]:
    batch_id = session.scalar(select(Run.batch_id).where(Run.id == run_id))
    if batch_id is None:
        raise NotFound(f"There is no run {run_id}. The results of a batch name the run of each row.")
    batch = lock_batch(session, batch_id)  # so that what the fork builds on is not dropped meanwhile
    run = session.get(Run, run_id)
    assert run is not None
    return run, batch


def _refuse_dropped(session: Session, batch: Batch) -> None:
    """The history of the batch must be there, and that of the runs that its forks build on."""
    if is_dropped(session, batch.month):
        raise Conflict(f"Batch {batch.id} is being dropped by retention; its history is gone.")
    inherited = session.scalars(
        select(Run.inherited).where(Run.batch_id == batch.id, Run.forked_from.is_not(None))
    ).all()
    segments = [Segment.from_json(value) for values in inherited for value in values or []]
    for segment in segments:
        # locked, so that what the fork builds on is not dropped meanwhile
        there = session.execute(_LOCK_BATCH_OF, {"run": segment.run_id}).one_or_none()
        if there is None or is_dropped(session, segment.month):
            raise Conflict(
                f"Batch {batch.id} builds on run {segment.run_id}, whose history was dropped by retention."
            )


_LOCK_BATCH_OF = text(
    "SELECT FROM batches WHERE id = (SELECT batch_id FROM runs WHERE id = :run) FOR KEY SHARE"
)


def _fork_batch(session: Session, run: Run, batch: Batch, plan: Plan, step: int, actor: str) -> Run:
    """The rows of the new batch: its only run."""
    month = session.scalar(text("SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date"))
    session.execute(text("SELECT ensure_transitions_partition(:month)"), {"month": month})
    new_batch = Batch(
        name=f"fork of run {run.id} from step {step}",
        pipeline=batch.pipeline,
        collection=batch.collection,
        plan=plan.model_dump(),
        source=clean_json({**batch.source, "forked_from": {"run": run.id, "step": step}}),
        row_count=1,
        run_count=1,
        month=month,
        submitted_by=clean_text(actor),
        owner=batch.owner,  # whoever may see the one may see the other
    )
    session.add(new_batch)
    session.flush()
    segments = Course.of(run).segments(run.id, batch.month, step)
    first_step = step if segments else 1
    new = Run(
        batch_id=new_batch.id,
        first_row=1,
        question=run.question,
        step=first_step - 1,
        first_step=first_step,
        forked_from=run.id,
        inherited=[segment.to_json() for segment in segments] or None,
    )
    session.add(new)
    session.flush()
    row = session.execute(
        select(BatchRow.original, BatchRow.notes).where(
            BatchRow.batch_id == batch.id, BatchRow.row_number == run.first_row
        )
    ).one()
    session.add(
        BatchRow(batch_id=new_batch.id, row_number=1, run_id=new.id, original=row.original, notes=row.notes)
    )
    session.flush()
    return new
