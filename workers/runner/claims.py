"""The claim: (run, step, branch) is won by compare-and-set before its node runs, and given up the same way.

Only the database's clock decides. A claim whose lease has run out belongs to whoever takes it next, and
the attempt number tells the old owner, if it comes back, that its result is not wanted.
"""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from sqlalchemy import Float, and_, exists, func, insert, or_, select, text, update
from sqlalchemy.orm import Session

from shared.clean import clean_json
from shared.course import COURSE, Course
from shared.plan import Plan
from shared.statuses import BatchStatus, ClaimStatus, GradeLabel, RunStatus, TransitionStatus
from shared.tables import Batch, Claim, Grade, ModelCall, Run, Transition, WebSearch


@dataclass(frozen=True)
class Won:
    """A claim that this process owns until its lease runs out."""

    run_id: int
    step: int
    branch: int
    width: int
    node: str
    attempt: int
    lost: int  # earlier attempts whose worker was lost
    forgiven: int  # earlier attempts that do not count: the provider was failing or refusing everybody
    failing_for: float  # seconds since the first time that it was
    argument: Any
    came_from: list[str]
    task_id: str
    worker: str
    started_at: datetime
    batch_id: int
    month: date
    question: str
    plan: Plan
    course: Course = field(default_factory=Course)
    earlier: int = 0  # attempts of earlier rounds

    @property
    def tries(self) -> int:
        """Attempts of this round that count, this one included."""
        return self.attempt - self.earlier - self.forgiven

    @property
    def last_attempt(self) -> bool:
        return self.tries >= self.plan.max_attempts


class LostClaim(Exception):
    """The lease ran out and somebody else has the claim: drop the result, change nothing."""


def seconds(value: Any) -> Any:
    """An SQL interval of `value` seconds: a number, or an SQL expression of one."""
    return func.make_interval(0, 0, 0, 0, 0, 0, value)


def failing_for() -> Any:
    """Seconds since the provider of this claim's calls was first found failing; 0: it was not."""
    since = func.extract("epoch", func.now() - Claim.failing_since)
    return func.coalesce(since, 0).cast(Float).label("failing_for")


def win(
    session: Session, run_id: int, step: int, branch: int, *, task_id: str, worker: str, lease: float
) -> Won | None:
    """Claim a branch; None when there is nothing to do (done, not due, somebody else's, run ended), or its
    batch is not open."""
    claimed = session.execute(
        update(Claim)
        .where(
            Claim.run_id == run_id,
            Claim.step == step,
            Claim.branch == branch,
            Claim.status == ClaimStatus.READY,
            or_(Claim.not_before.is_(None), Claim.not_before <= func.now()),
            exists().where(
                Run.id == run_id,
                Run.status == RunStatus.RUNNING,
                Run.step == step,
                Batch.id == Run.batch_id,
                Batch.status == BatchStatus.OPEN,
            ),
        )
        .values(
            status=ClaimStatus.RUNNING,
            attempt=Claim.attempt + 1,
            worker=worker,
            task_id=task_id,
            started_at=func.clock_timestamp(),
            lease_until=func.now() + seconds(lease),
        )
        .returning(
            *Claim.__table__.c,
            failing_for(),
        )
    ).one_or_none()
    if claimed is None:
        return None
    run = session.execute(
        select(Run.batch_id, Run.question, *COURSE, Batch.month, Batch.plan)
        .join(Batch, Batch.id == Run.batch_id)
        .where(Run.id == run_id)
    ).one()
    return won_of(claimed, run, claimed.failing_for)


def won_of(claim: Any, run: Any, failing_for: float = 0.0) -> Won:
    """A `Won` from its row of `claims` and one of batch_id, question, `COURSE`, month and plan of its run."""
    return Won(
        run_id=claim.run_id,
        step=claim.step,
        branch=claim.branch,
        width=claim.width,
        node=claim.node,
        attempt=claim.attempt,
        lost=claim.lost,
        forgiven=claim.forgiven,
        failing_for=failing_for,
        argument=claim.argument,
        came_from=claim.came_from,
        task_id=claim.task_id or "",
        worker=claim.worker or "",
        started_at=claim.started_at,
        batch_id=run.batch_id,
        month=run.month,
        question=run.question,
        plan=Plan.model_validate(run.plan),
        course=Course.of(run),
        earlier=claim.earlier,
    )


_FAILING = {"failing_since": func.coalesce(Claim.failing_since, func.now())}


def _mine(won: Won) -> Any:
    return and_(
        Claim.run_id == won.run_id,
        Claim.step == won.step,
        Claim.branch == won.branch,
        Claim.status == ClaimStatus.RUNNING,
        Claim.attempt == won.attempt,
    )


def _give_back(session: Session, won: Won, values: dict[str, Any]) -> None:
    changed = session.execute(
        update(Claim).where(_mine(won)).values(lease_until=None, **values).returning(Claim.run_id)
    ).one_or_none()
    if changed is None:
        raise LostClaim(f"run {won.run_id} step {won.step} branch {won.branch} attempt {won.attempt}")


def mark_done(session: Session, won: Won, goes_to: list[dict[str, Any]], join_grace: float) -> None:
    """Raises LostClaim. `join_grace`: seconds after which the reconciler joins if the chord has not."""
    _give_back(
        session,
        won,
        {"status": ClaimStatus.DONE, "goes_to": goes_to, "wake_at": func.now() + seconds(join_grace)},
    )


def mark_failed(session: Session, won: Won) -> None:
    """Out of tries, or beyond mending. Raises LostClaim."""
    _give_back(session, won, {"status": ClaimStatus.FAILED, "wake_at": func.now()})


def mark_for_retry(session: Session, won: Won, pause: float, *, forgiven: bool = False) -> None:
    """Ready again after `pause` seconds; a `forgiven` attempt does not count. Raises LostClaim."""
    due = func.now() + seconds(pause)
    values: dict[str, Any] = {"status": ClaimStatus.READY, "not_before": due, "wake_at": due}
    if forgiven:
        values |= {"forgiven": Claim.forgiven + 1, "publishes": 0, **_FAILING}
    _give_back(session, won, values)


def mark_lost(session: Session, won: Won) -> None:
    """Ready for the next worker; this attempt's was lost. Raises LostClaim."""
    _give_back(
        session,
        won,
        {"status": ClaimStatus.READY, "lost": Claim.lost + 1, "not_before": None, "wake_at": func.now()},
    )


def has_enough(session: Session, won: Won) -> bool:
    """Whether the plan's `enough_relevant` documents of this fan-out are relevant already."""
    enough = int(won.plan.params.get("enough_relevant", 0))
    if not enough or won.width == 1:
        return False
    relevant = session.scalar(
        select(func.count()).where(
            Grade.run_id == won.run_id, Grade.step == won.step, Grade.label == GradeLabel.RELEVANT
        )
    )
    return (relevant or 0) >= enough


def is_first_suspect(session: Session, won: Won) -> bool:
    """Whether no other open branch of this step was lost more often than `won` (or as often, before it)."""
    other = exists().where(
        Claim.run_id == won.run_id,
        Claim.step == won.step,
        Claim.branch != won.branch,
        Claim.status.in_((ClaimStatus.READY, ClaimStatus.RUNNING)),
        or_(Claim.lost > won.lost, and_(Claim.lost == won.lost, Claim.branch < won.branch)),
    )
    return not session.scalar(select(other))


def put_back(session: Session, won: Won, pause: float, *, failing: bool = False) -> None:
    """As if it had not been claimed, for `pause` seconds. Raises LostClaim.

    Its message came through, so the pause of the next publications starts anew. `failing`: because of a
    provider that does not work, whose time is counted from now on.
    """
    due = func.now() + seconds(pause)
    _give_back(
        session,
        won,
        {
            "status": ClaimStatus.READY,
            "attempt": Claim.attempt - 1,
            "publishes": 0,
            "not_before": due,
            "wake_at": due,
            **(_FAILING if failing else {}),
        },
    )


def skip_waiting(session: Session, won: Won) -> None:
    """A branch has failed for good, and with it the run: branches that nobody works on are not begun."""
    waiting = session.execute(
        select(Claim.branch, Claim.node, Claim.attempt, Claim.came_from)
        .where(Claim.run_id == won.run_id, Claim.step == won.step, Claim.status == ClaimStatus.READY)
        .with_for_update(skip_locked=True)
    ).all()
    for row in waiting:
        session.execute(
            update(Claim)
            .where(Claim.run_id == won.run_id, Claim.step == won.step, Claim.branch == row.branch)
            .values(status=ClaimStatus.FAILED, wake_at=func.now())
        )
        _write(
            session,
            won,
            branch=row.branch,
            attempt=row.attempt + 1,
            node=row.node,
            status=TransitionStatus.SKIPPED,
            came_from=row.came_from,
            goes_to=[],
            started_at=func.now(),
            ended_at=func.now(),
            duration_ms=0,
            error=f"not begun: branch {won.branch} had failed",
        )


def renew(session: Session, held: list[Won], lease: float) -> None:
    """Extend the leases of the claims that this process still works on."""
    keys = [(won.run_id, won.step, won.branch, won.attempt) for won in held]
    # Locked in this order, as a cancel does: two who lock many rows in different orders may block each other.
    session.execute(
        text(
            "WITH mine AS (SELECT claims.run_id, claims.step, claims.branch FROM claims"
            "  JOIN unnest(CAST(:runs AS bigint[]), CAST(:steps AS int[]), CAST(:branches AS int[]),"
            "              CAST(:attempts AS int[])) AS held (run_id, step, branch, attempt)"
            "    ON (claims.run_id, claims.step, claims.branch, claims.attempt)"
            "     = (held.run_id, held.step, held.branch, held.attempt) AND claims.status = 'running'"
            " ORDER BY claims.run_id, claims.step, claims.branch FOR UPDATE OF claims)"
            " UPDATE claims SET lease_until = now() + make_interval(secs => :lease) FROM mine"
            " WHERE (claims.run_id, claims.step, claims.branch) = (mine.run_id, mine.step, mine.branch)"
            "   AND claims.status = 'running'"
        ),
        {
            "lease": lease,
            "runs": [key[0] for key in keys],
            "steps": [key[1] for key in keys],
            "branches": [key[2] for key in keys],
            "attempts": [key[3] for key in keys],
        },
    )


@dataclass(frozen=True)
class Usage:
    """Tokens and cost of an attempt; None where no model call said any."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


def stored_usage(session: Session, won: Won) -> Usage:
    """What the calls of this attempt cost that were stored before its worker was lost."""
    mine = {"run_id": won.run_id, "step": won.step, "branch": won.branch, "attempt": won.attempt}
    calls = session.execute(
        select(
            func.sum(ModelCall.input_tokens), func.sum(ModelCall.output_tokens), func.sum(ModelCall.cost_usd)
        ).filter_by(**mine)
    ).one()
    searches = session.scalar(select(func.sum(WebSearch.cost_usd)).filter_by(**mine))
    costs = [float(cost) for cost in (calls[2], searches) if cost is not None]
    tokens_in, tokens_out = (None if total is None else int(total) for total in calls[:2])
    return Usage(tokens_in, tokens_out, sum(costs) if costs else None)


def add_transition(
    session: Session,
    won: Won,
    status: TransitionStatus,
    *,
    goes_to: list[str] | None = None,
    state_update: dict[str, Any] | None = None,
    usage: Usage | None = None,
    error: BaseException | None = None,
    error_text: str | None = None,
) -> None:
    """Write the record of this attempt, ended now."""
    usage = usage or Usage()
    started, ended = won.started_at, func.greatest(func.clock_timestamp(), won.started_at)
    _write(
        session,
        won,
        branch=won.branch,
        attempt=won.attempt,
        node=won.node,
        status=status,
        came_from=won.came_from,
        goes_to=goes_to or [],
        state_update=None if state_update is None else clean_json(state_update),
        started_at=started,
        ended_at=ended,
        duration_ms=func.extract("epoch", ended - started) * 1000,
        worker=won.worker,
        task_id=won.task_id,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=usage.cost_usd,
        error_class=None if error is None else type(error).__name__,
        error=error_text,
    )


def _write(session: Session, won: Won, **columns: Any) -> None:
    """A transition in the step of `won`, of its own branch or of another."""
    place = {"month": won.month, "run_id": won.run_id, "batch_id": won.batch_id, "step": won.step}
    session.execute(insert(Transition).values(**place, round=won.course.round, **columns))
