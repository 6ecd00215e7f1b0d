"""Admission: a bounded window of runs in flight, shared fairly by the open batches.

A batch of a million is a million rows and a few hundred messages. A free place goes to the batch with the
highest priority, and among equals to that with the fewest runs in flight for its weight, so ten questions
submitted behind a million do not wait for them. What a paused batch has in flight waits, and takes no place;
nor does a run that is put back for more than some seconds take the place of another batch.
"""

from collections.abc import Sequence
from typing import Any

import structlog
from pydantic import ValidationError
from sqlalchemy import Engine, func, select, text, update
from sqlalchemy.orm import Session

from shared.control import SYSTEM, add_event, pause
from shared.course import COURSE, Course
from shared.db import transaction
from shared.plan import Plan
from shared.settings import Settings
from shared.statuses import EventAction, RunStatus
from shared.tables import Batch, Run
from workers.runner import reuse_runs
from workers.runner.advance import LockedRun, Publication, add_claims, end_run, fail_run, load_state
from workers.runner.entry import entry
from workers.runner.graph_adapter import NodeBroke
from workers.runner.pipelines import adapters
from workers.runner.prompts import freeze_prompts

log = structlog.get_logger()
# One dispatcher at a time: two would both count the window before filling it.
DISPATCH_LOCK = 7226_0002
# How often one tick fills again the places of runs that were taken over and ended at once.
_ROUNDS = 20

_NEXT = text(
    """
    SELECT candidate.id, batches.id AS batch_id
      FROM batches
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs FROM runs
            WHERE batch_id = batches.id AND status = 'running') AS in_flight
     CROSS JOIN LATERAL (
           SELECT pending.id, row_number() OVER (ORDER BY pending.first_row) AS turn
             FROM (SELECT id, first_row FROM runs
                    WHERE batch_id = batches.id AND status = 'pending'
                    ORDER BY first_row
                    LIMIT greatest(0, least(:room, :window - in_flight.runs, batches.max_in_flight - in_flight.runs))
                  ) AS pending) AS candidate
     -- a pipeline that this version does not know waits for workers that do
     WHERE batches.status = 'open' AND batches.pipeline = ANY (:pipelines)
     -- random: with fewer places than batches, a fixed order would be the same batch's at every tick
     ORDER BY batches.priority DESC, (in_flight.runs + candidate.turn) / batches.weight, random()
     LIMIT :room
    """
)
_IN_FLIGHT = text(
    """
    SELECT count(*) FROM runs JOIN batches ON batches.id = runs.batch_id
     WHERE runs.status = 'running' AND batches.status = 'open'
       -- who waits for a provider, or for its rate limit, keeps no other batch waiting
       AND (NOT EXISTS (SELECT FROM claims
                         WHERE claims.run_id = runs.id AND claims.status = 'ready'
                           AND claims.not_before > now() + interval '10 s')
            OR EXISTS (SELECT FROM claims
                        WHERE claims.run_id = runs.id
                          AND (claims.status = 'running' OR claims.status = 'ready'
                               AND coalesce(claims.not_before, now()) <= now() + interval '10 s')))
    """
)
_THROUGH = text(
    """
    SELECT id FROM batches
     WHERE status IN ('open', 'paused')
       -- two looks into an index for each batch; NOT EXISTS would be a join with all runs there are, each second
       AND (SELECT id FROM runs WHERE batch_id = batches.id AND status = 'pending'
             ORDER BY first_row LIMIT 1) IS NULL
       AND (SELECT id FROM runs WHERE batch_id = batches.id AND status = 'running'
             ORDER BY id LIMIT 1) IS NULL
       FOR NO KEY UPDATE SKIP LOCKED
    """
)
_END_BATCHES = text(
    """
    UPDATE batches
       SET status = 'ended',
           ended_at = greatest(submitted_at, (SELECT max(ended_at) FROM runs WHERE batch_id = batches.id))
     WHERE id = ANY (:ids)
       AND NOT EXISTS (SELECT FROM runs WHERE batch_id = batches.id AND status IN ('pending', 'running'))
    RETURNING id
    """
)


def admit(engine: Engine, settings: Settings) -> list[Publication]:
    """Fill the window, end the batches that are through, and return what is to be published."""
    with transaction(engine) as session:
        if not session.scalar(select(func.pg_try_advisory_xact_lock(DISPATCH_LOCK))):
            return []
        _end_batches(session)
        room = settings.window - (session.scalar(_IN_FLIGHT) or 0)
        if room <= 0:
            return []
        publications: list[Publication] = []
        for _ in range(_ROUNDS):
            left = room - len(publications)
            values = {"room": left, "window": settings.window, "pipelines": sorted(adapters())}
            found = session.execute(_NEXT, values).all()
            if not found:  # as at most ticks
                break
            batch_ids = {row.batch_id for row in found}
            plans = _plans(session, batch_ids)
            ids = [row.id for row in found if row.batch_id in plans]
            admitted, taken_over = _admit(session, ids, plans, settings)
            publications += admitted
            if not taken_over and len(plans) == len(batch_ids):
                break
        return publications


def _end_batches(session: Session) -> None:
    """End those whose runs all have a disposition. Their rows are locked before the second look: a retry
    that came between has made runs of them pending, which the snapshot of the first look does not show."""
    ids = list(session.scalars(_THROUGH))
    if ids:
        for batch_id in session.scalars(_END_BATCHES, {"ids": ids}).all():
            add_event(session, batch_id, EventAction.ENDED, SYSTEM)


def _admit(
    session: Session, ids: list[int], plans: dict[int, Plan], settings: Settings
) -> tuple[list[Publication], int]:
    """What is to be published, and how many of the runs ended at once and left their places free."""
    # Locked and looked at again: a cancel may have come between.
    rows = session.execute(
        select(Run.id, Run.batch_id, Run.question, Run.step, *COURSE, Batch.month)
        .join(Batch, Batch.id == Run.batch_id)
        .where(Run.id.in_(ids), Run.status == RunStatus.PENDING)
        .with_for_update(of=Run, skip_locked=True)
    ).all()
    ended = reuse_runs.take_over(session, rows, plans)
    rows = [row for row in rows if row.id not in ended]
    session.execute(
        update(Run)
        .where(Run.id.in_([row.id for row in rows]))
        .values(
            status=RunStatus.RUNNING,
            # of a run that enters a step again, that step; else the first of its course
            step=func.greatest(Run.step, Run.first_step),
            admitted_at=func.coalesce(Run.admitted_at, func.clock_timestamp()),
        )
    )
    order = {run_id: at for at, run_id in enumerate(ids)}
    publications = [_begin(session, run, step, settings) for run, step in _locked(rows, plans, order)]
    return [publication for publication in publications if publication is not None], len(ended)


def _locked(
    rows: Sequence[Any], plans: dict[int, Plan], order: dict[int, int]
) -> list[tuple[LockedRun, int]]:
    """The runs in the order of their turn, each with the step that it had while pending."""
    return [
        (
            LockedRun(row.id, row.batch_id, row.month, row.question, plans[row.batch_id], Course.of(row)),
            row.step,
        )
        for row in sorted(rows, key=lambda row: order[row.id])
    ]


def _begin(session: Session, run: LockedRun, step: int, settings: Settings) -> Publication | None:
    """The claims of a run's first step, or of the one that it enters again."""
    adapter = adapters()[run.plan.pipeline]
    try:
        found = entry(session, adapter, run, step)
    except NodeBroke as error:  # no try would help; and it must not keep the others from being admitted
        fail_run(session, run.run_id, f"admission: {error}")
        return None
    if not found.tasks:  # a fork whose new parameters lead straight to the end
        end_run(session, run.run_id, load_state(session, adapter, run, before=found.step))
        return None
    add_claims(
        session,
        run.run_id,
        found.step,
        found.tasks,
        found.came_from,
        settings.republish_seconds,
        attempts=found.attempts,
        done=found.done,
    )
    nodes = [task.node for task in found.tasks]
    return Publication(run.plan.pipeline, run.batch_id, run.run_id, found.step, nodes)


def _plans(session: Session, batch_ids: set[int]) -> dict[int, Plan]:
    """The batches' plans; a batch seen for the first time gets its prompt versions frozen. One whose plan cannot
    be read, as another version may have written it, is paused: it must not keep the others from being admitted."""
    plans = {}
    for row in session.execute(select(Batch.id, Batch.plan).where(Batch.id.in_(batch_ids))).all():
        try:
            plan = Plan.model_validate(row.plan)
        except ValidationError as error:
            fields = ", ".join(sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]}))
            reason = f"its plan cannot be read by this version of the workers: {fields or 'it is no object'}"
            pause(session, row.id, actor=SYSTEM, reason=reason)
            log.error("batch paused", batch_id=row.id, reason=reason)
            continue
        if not plan.prompts and plan.provider != "local":
            plan = freeze_prompts(session, plan)
            session.execute(update(Batch).where(Batch.id == row.id).values(plan=plan.model_dump()))
        plans[row.id] = plan
    return plans
