"""Admission: a bounded window of runs in flight, shared fairly by the open batches.

A batch of a million is a million rows and a few hundred messages. A free place goes to the batch with the
fewest runs in flight, so ten questions submitted behind a million do not wait for them.
"""

from sqlalchemy import Engine, func, select, text, update
from sqlalchemy.orm import Session

from shared.db import transaction
from shared.plan import Plan
from shared.settings import Settings
from shared.statuses import RunStatus
from shared.tables import Batch, Run
from workers.runner import reuse_runs
from workers.runner.advance import Publication, add_claims, input_of
from workers.runner.pipelines import adapters
from workers.runner.prompts import freeze_prompts

# One dispatcher at a time: two would both count the window before filling it.
DISPATCH_LOCK = 7226_0002
# How often one tick fills again the places of runs that were taken over and ended at once.
_ROUNDS = 20

_NEXT = text(
    """
    SELECT candidate.id
      FROM batches
     CROSS JOIN LATERAL (
           SELECT count(*) AS runs FROM runs
            WHERE batch_id = batches.id AND status = 'running') AS in_flight
     CROSS JOIN LATERAL (
           SELECT pending.id, row_number() OVER (ORDER BY pending.first_row) AS turn
             FROM (SELECT id, first_row FROM runs
                    WHERE batch_id = batches.id AND status = 'pending'
                    ORDER BY first_row LIMIT :room) AS pending) AS candidate
     -- a pipeline that this version does not know waits for workers that do
     WHERE batches.status = 'open' AND batches.pipeline = ANY (:pipelines)
     -- random: with fewer places than batches, a fixed order would be the same batch's at every tick
     ORDER BY in_flight.runs + candidate.turn, random()
     LIMIT :room
    """
)
_END_BATCHES = text(
    """
    UPDATE batches
       SET status = 'ended',
           ended_at = greatest(submitted_at, (SELECT max(ended_at) FROM runs WHERE batch_id = batches.id))
     WHERE status = 'open'
       AND NOT EXISTS (SELECT FROM runs WHERE batch_id = batches.id AND status IN ('pending', 'running'))
    """
)


def admit(engine: Engine, settings: Settings) -> list[Publication]:
    """Fill the window, end the batches that are through, and return what is to be published."""
    with transaction(engine) as session:
        if not session.scalar(select(func.pg_try_advisory_xact_lock(DISPATCH_LOCK))):
            return []
        session.execute(_END_BATCHES)
        in_flight = session.scalar(select(func.count()).where(Run.status == RunStatus.RUNNING)) or 0
        room = settings.window - in_flight
        if room <= 0:
            return []
        publications: list[Publication] = []
        for _ in range(_ROUNDS):
            left = room - len(publications)
            ids = list(session.scalars(_NEXT, {"room": left, "pipelines": sorted(adapters())}))
            admitted, taken_over = _admit(session, ids, settings) if ids else ([], 0)
            publications += admitted
            if not taken_over:
                break
        return publications


def _admit(session: Session, ids: list[int], settings: Settings) -> tuple[list[Publication], int]:
    """What is to be published, and how many of the runs ended at once and left their places free."""
    # Locked and looked at again: a cancel may have come between.
    runs = session.execute(
        select(Run.id, Run.batch_id, Run.question)
        .where(Run.id.in_(ids), Run.status == RunStatus.PENDING)
        .with_for_update(skip_locked=True)
    ).all()
    plans = _plans(session, {run.batch_id for run in runs})
    order = {run_id: at for at, run_id in enumerate(ids)}
    ended = reuse_runs.take_over(session, runs, plans)
    runs = [run for run in runs if run.id not in ended]
    publications = []
    for run in sorted(runs, key=lambda run: order[run.id]):
        plan = plans[run.batch_id]
        adapter = adapters()[plan.pipeline]
        tasks = adapter.first_steps(input_of(adapter, run.question, plan))
        add_claims(session, run.id, 1, tasks, ["__start__"], settings.republish_seconds)
        publications.append(
            Publication(plan.pipeline, run.batch_id, run.id, 1, [task.node for task in tasks])
        )
    session.execute(
        update(Run)
        .where(Run.id.in_([run.id for run in runs]))
        .values(status=RunStatus.RUNNING, step=1, admitted_at=func.clock_timestamp())
    )
    return publications, len(ended)


def _plans(session: Session, batch_ids: set[int]) -> dict[int, Plan]:
    """The batches' plans; a batch seen for the first time gets its prompt versions frozen."""
    plans = {}
    for row in session.execute(select(Batch.id, Batch.plan).where(Batch.id.in_(batch_ids))):
        plan = Plan.model_validate(row.plan)
        if not plan.prompts and plan.provider != "local":
            plan = freeze_prompts(session, plan)
            session.execute(update(Batch).where(Batch.id == row.id).values(plan=plan.model_dump()))
        plans[row.id] = plan
    return plans
