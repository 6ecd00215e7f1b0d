"""The budget's side of a call: reserve before it, settle with its record, count what was left behind."""

import random

import structlog
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from shared import control
from shared.budget import spending
from shared.db import transaction
from shared.errors import Postponed
from shared.statuses import BatchStatus
from workers.models.calls import CallRecord, call_cost_usd
from workers.runner.claims import Won
from workers.runner.limits.estimates import Estimate

log = structlog.get_logger()
_AGAIN = 2.0  # seconds until calls are asked for again that others' reservations leave no room for


class NotOpen(Postponed):
    """The batch is paused or cancelled: nothing of it is paid for any more."""


def reserve(engine: Engine, won: Won, role: str, estimate: Estimate) -> int | None:
    """The reservation's id; None where the batch has no cap. Raises Postponed (and pauses the batch) when
    there is no room for the call, NotOpen when the batch does not go on."""
    with transaction(engine) as session:
        batch = session.execute(
            text("SELECT status, max_cost_usd, max_tokens FROM batches WHERE id = :b"), {"b": won.batch_id}
        ).one_or_none()
        if batch is None or batch.status != BatchStatus.OPEN:
            raise NotOpen(_AGAIN, "the batch is not open")
        if batch.max_cost_usd is None and batch.max_tokens is None:
            return None
        now = spending(session, won.batch_id, lock=True)
        assert now is not None, "a batch with a cap has a budget"
        full = now.over(estimate.cost_usd or 0.0, estimate.tokens)
        if not full:
            return _insert(session, won, role, estimate)
    if not now.under_way:  # nothing will give room back
        _pause(engine, won, estimate)
    raise Postponed(_AGAIN + random.uniform(0, 1), full.partition(":")[0])  # noqa: S311 - spreading, not secrecy


def _insert(session: Session, won: Won, role: str, estimate: Estimate) -> int:
    values = {
        "batch": won.batch_id, "run": won.run_id, "step": won.step, "branch": won.branch,
        "attempt": won.attempt, "role": role, "cost": estimate.cost_usd or 0.0, "tokens": estimate.tokens,
    }  # fmt: skip
    return int(session.scalar(text(_INSERT), values) or 0)


_INSERT = """
INSERT INTO reservations (batch_id, run_id, step, branch, attempt, role, cost_usd, tokens)
VALUES (:batch, :run, :step, :branch, :attempt, :role, :cost, :tokens) RETURNING id
"""


def _pause(engine: Engine, won: Won, estimate: Estimate) -> None:
    """Looks again with the batch's row locked, so that a cap raised in this moment is not overlooked."""
    with transaction(engine) as session:
        control.lock_batch(session, won.batch_id)
        now = spending(session, won.batch_id)
        full = now.over(estimate.cost_usd or 0.0, estimate.tokens) if now and not now.under_way else ""
        if full and control.pause(session, won.batch_id, actor=control.SYSTEM, reason=full).changed:
            log.warning("batch paused", batch_id=won.batch_id, reason=full)


def settle(
    session: Session, reservation: int | None, won: Won, estimate: Estimate, record: CallRecord
) -> None:
    """In the transaction that stores the call: its reservation becomes what it cost.

    What the provider did not say of an answer's tokens is taken from the estimate, also where we gave up waiting
    for the answer or could not read it; other failed calls without tokens are taken to be free. A call that was
    let through without a reservation counts, too, where its batch has been given a cap meanwhile, or had one
    before: the next cap goes by everything that was spent.
    """
    read, written, cost = record.input_tokens, record.output_tokens, record.cost_usd
    if record.perhaps_paid and (read is None or written is None):
        read = estimate.input_tokens if read is None else read
        written = estimate.output_tokens if written is None else written
        cost = call_cost_usd(record.spec, read, written, won.plan.prices)
    cost, tokens = cost or 0.0, (read or 0) + (written or 0)
    if reservation is not None:
        mine = session.execute(
            text("DELETE FROM reservations WHERE id = :r RETURNING id"), {"r": reservation}
        )
        if mine.first() is None:  # this worker was thought lost, and the call was counted as it was estimated
            cost, tokens = cost - (estimate.cost_usd or 0.0), tokens - estimate.tokens
    session.execute(
        text(
            "UPDATE budgets SET spent_usd = spent_usd + :cost, spent_tokens = spent_tokens + :tokens"
            " WHERE batch_id = :b"
        ),
        {"cost": cost, "tokens": tokens, "b": won.batch_id},
    )


def count_left_behind(engine: Engine) -> int:
    """Calls whose worker is gone may be on the bill: their reservations become spending. Returns how many.

    Those are left behind whose claim is over, or has gone to another attempt.
    """
    with transaction(engine) as session:
        return int(session.scalar(text(_COUNT)) or 0)


_COUNT = """
WITH gone AS (
    DELETE FROM reservations
     WHERE NOT EXISTS (
           SELECT FROM claims
            WHERE claims.run_id = reservations.run_id AND claims.step = reservations.step
              AND claims.branch = reservations.branch AND claims.attempt = reservations.attempt
              AND claims.status = 'running')
    RETURNING batch_id, cost_usd, tokens),
sums AS (
    SELECT batch_id, sum(cost_usd) AS cost_usd, sum(tokens) AS tokens, count(*) AS calls FROM gone GROUP BY batch_id),
counted AS (
    UPDATE budgets
       SET spent_usd = spent_usd + sums.cost_usd, spent_tokens = spent_tokens + sums.tokens
      FROM sums WHERE budgets.batch_id = sums.batch_id)
SELECT sum(calls) FROM sums
"""
