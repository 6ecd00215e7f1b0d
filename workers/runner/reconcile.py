"""Heals from Postgres whatever the queue has lost. Idempotent, and safe to run twice at once.

lease run out        -> a `lost` transition; ready again, or failed after the last attempt
ready and overdue    -> published again, with a growing pause
all branches over    -> joined, when the chord's body did not
messages forgotten   -> all of the above at once, see `flush_watch`
"""

import structlog
from pydantic import ValidationError
from sqlalchemy import Engine, case, func, or_, select, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from shared import heartbeats
from shared.course import COURSE
from shared.db import transaction
from shared.settings import Settings
from shared.statuses import BatchStatus, ClaimStatus, RunStatus, TransitionStatus
from shared.tables import Batch, Claim, Run
from workers.runner import advance, claims
from workers.runner.advance import Publication
from workers.runner.claims import Won

log = structlog.get_logger()
SWEEP = 500  # claims looked at in one transaction
_LONGEST_PAUSE = 600.0
_LEFT = 60.0  # seconds until a run is looked at again that nothing could be done for


def spare_the_living(engine: Engine, settings: Settings) -> int:
    """After a time in which nobody reconciled, prolong the leases that could not be renewed either, as Postgres or
    the whole machine was away: whoever lives renews them now, and the others are lost a little later."""
    with transaction(engine) as session:
        if not heartbeats.note_after_a_gap(session, heartbeats.RECONCILER, settings.lease_seconds):
            return 0
        return len(session.execute(text(_PROLONG), {"more": 2 * settings.heartbeat_seconds}).all())


_PROLONG = """
UPDATE claims SET lease_until = now() + make_interval(secs => :more)
  FROM (SELECT run_id, step, branch FROM claims
         WHERE status = 'running' AND lease_until < now() + make_interval(secs => :more)
         ORDER BY run_id, step, branch FOR UPDATE SKIP LOCKED) AS held
 WHERE (claims.run_id, claims.step, claims.branch) = (held.run_id, held.step, held.branch)
RETURNING claims.run_id
"""


def take_back_lost(engine: Engine) -> int:
    """Claims whose worker was not heard of: recorded as lost, and given to the next."""
    with transaction(engine) as session:
        rows = session.execute(
            select(Claim, Run.question, Run.batch_id, *COURSE, Batch.month, Batch.plan)
            .join(Run, Run.id == Claim.run_id)
            .join(Batch, Batch.id == Run.batch_id)
            .where(Claim.status == ClaimStatus.RUNNING, Claim.lease_until < func.now())
            .limit(SWEEP)
            .with_for_update(of=Claim, skip_locked=True)
        ).all()
        taken = 0
        for row in rows:
            try:
                won = claims.won_of(row.Claim, row)
            except ValidationError as error:
                _leave(session, row.Claim.run_id, row.Claim.step, error)
            else:
                _take_back(session, won)
                taken += 1
    return taken


def _take_back(session: Session, won: Won) -> None:
    usage = claims.stored_usage(session, won)
    note = f"lost: worker {won.worker} was not heard of"
    if not won.last_attempt:
        claims.add_transition(session, won, TransitionStatus.LOST, usage=usage, error_text=note)
        claims.mark_lost(session, won)
        return
    note += f", at the last of {won.tries} attempts"
    claims.add_transition(session, won, TransitionStatus.FAILED, usage=usage, error_text=note)
    claims.mark_failed(session, won)
    if won.width > 1:
        claims.skip_waiting(session, won)


def _leave(session: Session, run_id: int, step: int, error: Exception) -> None:
    """For a while: a run that this version of the workers cannot go on with must not stand before the others."""
    log.error("a run cannot be healed", run_id=run_id, step=step, error=type(error).__name__)
    later = func.now() + claims.seconds(_LEFT)
    session.execute(
        update(Claim)
        .where(Claim.run_id == run_id, Claim.step == step)
        .values(
            wake_at=func.greatest(Claim.wake_at, later),
            lease_until=case((Claim.lease_until < later, later), else_=Claim.lease_until),
        )
    )


def due(engine: Engine, settings: Settings) -> list[tuple[Publication, int]]:
    """Ready claims that nobody took in time, to be published again one by one, outside any chord."""
    with transaction(engine) as session:
        found = session.execute(
            select(
                Claim.run_id, Claim.step, Claim.branch, Claim.node, Claim.width, Run.batch_id, Batch.pipeline
            )
            .join(Run, Run.id == Claim.run_id)
            .join(Batch, Batch.id == Run.batch_id)
            .where(
                Claim.status == ClaimStatus.READY,
                Claim.wake_at <= func.now(),
                Run.status == RunStatus.RUNNING,
                Batch.status == BatchStatus.OPEN,  # those of a paused one wait; `resume` makes them due
            )
            .order_by(Claim.wake_at)
            .limit(SWEEP)
            .with_for_update(of=Claim, skip_locked=True)
        ).all()
        for row in found:
            # The exponent is bounded: beyond 1023 Postgres would refuse the whole sweep.
            doubled = func.power(2, func.least(Claim.publishes, 20))
            pause = func.least(settings.republish_seconds * doubled, _LONGEST_PAUSE)
            session.execute(
                update(Claim)
                .where(Claim.run_id == row.run_id, Claim.step == row.step, Claim.branch == row.branch)
                .values(publishes=Claim.publishes + 1, wake_at=func.now() + claims.seconds(pause))
            )
    return [
        # `nodes` is by branch; only this branch's place in it is read
        (Publication(row.pipeline, row.batch_id, row.run_id, row.step, [row.node] * row.width), row.branch)
        for row in found
    ]


def make_all_due(engine: Engine) -> int:
    """Messages were lost: nothing waits for its time to be overdue, but for a retry's pause.

    The pauses between publications start anew, because no message has shown that it is in vain. Returns how
    many claims that concerns. A message that was not lost after all finds nothing to do.
    """
    with transaction(engine) as session:
        due = session.execute(
            update(Claim)
            .where(
                Claim.status != ClaimStatus.RUNNING,
                or_(Claim.not_before.is_(None), Claim.not_before <= func.now()),
            )
            .values(wake_at=func.least(Claim.wake_at, func.now()), publishes=0)
            .returning(Claim.run_id)
        ).all()
    return len(due)


_OVER = text(
    """
    SELECT claims.run_id, claims.step
      FROM claims
     WHERE claims.status <> 'running' AND claims.wake_at <= now()
       AND claims.status IN ('done', 'failed')
       AND NOT EXISTS (SELECT FROM claims AS other
                        WHERE other.run_id = claims.run_id AND other.step = claims.step
                          AND other.status NOT IN ('done', 'failed'))
     GROUP BY claims.run_id, claims.step
     LIMIT :sweep
    """
)


def join_overdue(engine: Engine, settings: Settings) -> list[Publication]:
    """Fan-outs whose branches are all over, but whose chord body never came."""
    with transaction(engine) as session:
        steps = session.execute(_OVER, {"sweep": SWEEP}).all()
    publications = []
    for run_id, step in steps:
        try:
            with transaction(engine) as session:
                next_step = advance.join(session, run_id, step, settings.republish_seconds)
        except SQLAlchemyError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is that this one run has
            with transaction(engine) as session:
                _leave(session, run_id, step, error)
            continue
        if next_step is not None:
            publications.append(next_step)
    return publications
