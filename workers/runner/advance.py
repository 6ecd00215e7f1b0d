"""From a finished superstep to the next one, or to the run's disposition.

Whoever calls first does it: the run's row is locked and its step compared, so that the second caller
finds nothing to do. The result depends on the rows in branch order, never on who arrived when.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Protocol

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from shared.clean import clean_json, clean_text
from shared.course import COURSE, Course, Segment
from shared.plan import Plan
from shared.statuses import ClaimStatus, RunStatus, TransitionStatus
from shared.tables import Batch, Claim, Run, Transition
from workers.runner import reuse_runs
from workers.runner.claims import seconds
from workers.runner.graph_adapter import GraphAdapter, Next, NodeBroke
from workers.runner.pipelines import adapters


@dataclass(frozen=True)
class Publication:
    """What is to be published once the transaction is committed: one task, or one chord."""

    pipeline: str
    batch_id: int
    run_id: int
    step: int
    nodes: list[str] = field(default_factory=list)  # by branch


def input_of(adapter: GraphAdapter, question: str, plan: Plan) -> dict[str, Any]:
    """The state that a run starts with."""
    return adapter.input_state({"question": question, "params": plan.params})


class RunFacts(Protocol):
    """What the state of a run starts from; a `Won` claim and a locked run both say it."""

    @property
    def run_id(self) -> int: ...
    @property
    def month(self) -> date: ...
    @property
    def question(self) -> str: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def course(self) -> Course: ...


@dataclass(frozen=True)
class LockedRun:
    """A run whose row this transaction holds."""

    run_id: int
    batch_id: int
    month: date
    question: str
    plan: Plan
    course: Course = field(default_factory=Course)


def load_state(session: Session, adapter: GraphAdapter, run: RunFacts, before: int) -> dict[str, Any]:
    """The state before step `before`: the input, and each step's updates folded in branch order."""
    state = input_of(adapter, run.question, run.plan)
    return fold(session, adapter, state, run.course.segments(run.run_id, run.month, before))


def fold(
    session: Session, adapter: GraphAdapter, state: dict[str, Any], segments: Sequence[Segment]
) -> dict[str, Any]:
    """`state` with the updates of all steps of `segments`."""
    for segment in segments:
        by_step: dict[int, list[dict[str, Any]]] = {}
        for step, changes in _updates(session, segment):
            by_step.setdefault(step, []).append(changes or {})
        for step in sorted(by_step):
            state = adapter.merge(state, by_step[step])
    return state


def _updates(session: Session, segment: Segment) -> Sequence[Any]:
    return session.execute(
        select(Transition.step, Transition.state_update)
        .where(
            Transition.month == segment.month,
            Transition.run_id == segment.run_id,
            Transition.step >= segment.first,
            Transition.step < segment.before,
            Transition.status == TransitionStatus.SUCCEEDED,
        )
        .order_by(Transition.step, Transition.branch)
    ).all()


def lock_run(session: Session, run_id: int, step: int) -> LockedRun | None:
    """The run, its row locked, if it is running and at this step."""
    row = session.execute(
        select(Run.question, Run.batch_id, *COURSE, Batch.plan, Batch.month)
        .join(Batch, Batch.id == Run.batch_id)
        .where(Run.id == run_id, Run.step == step, Run.status == RunStatus.RUNNING)
        .with_for_update(of=Run)
    ).one_or_none()
    if row is None:
        return None
    plan = Plan.model_validate(row.plan)
    return LockedRun(run_id, row.batch_id, row.month, row.question, plan, Course.of(row))


def join(session: Session, run_id: int, step: int, republish: float) -> Publication | None:
    """Advance a run whose branches of `step` are all over. None: not all are, or it has been done."""
    run = lock_run(session, run_id, step)
    if run is None:
        return None
    claims = session.execute(
        select(Claim.branch, Claim.node, Claim.status, Claim.goes_to, Claim.width)
        .where(Claim.run_id == run_id, Claim.step == step)
        .order_by(Claim.branch)
    ).all()
    over = (ClaimStatus.DONE, ClaimStatus.FAILED)
    if not claims or len(claims) != claims[0].width or any(claim.status not in over for claim in claims):
        return None
    if any(claim.status == ClaimStatus.FAILED for claim in claims):
        fail_run(session, run_id, first_error(session, run, step))
        return None
    adapter = adapters()[run.plan.pipeline]
    try:
        state = load_state(session, adapter, run, before=step + 1)
    except NodeBroke as error:  # branches that cannot be folded: another try would find the same
        fail_run(session, run_id, f"join: {error}")
        return None
    leads = [[Next.from_json(item) for item in claim.goes_to or []] for claim in claims]
    came_from = sorted({claim.node for claim in claims})
    return enter(session, run, step, adapter.superstep(leads), came_from, state, republish)


def enter(
    session: Session,
    run: LockedRun,
    step: int,
    tasks: Sequence[Next],
    came_from: list[str],
    state: dict[str, Any],
    republish: float,
) -> Publication | None:
    """Leave `step` (whose claims go) and enter the next superstep, or end the run where there is none."""
    run_id, plan = run.run_id, run.plan
    session.execute(delete(Claim).where(Claim.run_id == run_id, Claim.step == step))
    if not tasks:
        end_run(session, run_id, state)
        return None
    if run.course.length(step + 1) > plan.params["max_steps"]:
        reason = out_of_steps(plan.params["max_steps"])
        end_run(session, run_id, {**state, "disposition": "gave_up", "reason": reason})
        return None
    session.execute(update(Run).where(Run.id == run_id).values(step=step + 1))
    add_claims(session, run_id, step + 1, tasks, came_from, republish)
    return Publication(plan.pipeline, run.batch_id, run_id, step + 1, [task.node for task in tasks])


def out_of_steps(limit: int) -> str:
    """The reason of a run that took as many supersteps as its plan allows."""
    return f"no answer within {limit} steps"


def add_claims(
    session: Session,
    run_id: int,
    step: int,
    tasks: Sequence[Next],
    came_from: list[str],
    republish: float,
    *,
    attempts: Mapping[int, int] | None = None,
    done: Mapping[int, list[Next]] | None = None,
) -> None:
    """One claim a task, ready, to be published now, and again by the reconciler after `republish` seconds.

    By branch, where a step is entered again: `attempts` made so far, and what the branches that are `done` led to.
    """
    attempts, done = attempts or {}, done or {}
    session.execute(
        insert(Claim).values(
            [
                {
                    "run_id": run_id,
                    "step": step,
                    "branch": branch,
                    "width": len(tasks),
                    "node": task.node,
                    "argument": None if task.argument is None else clean_json(task.argument),
                    "came_from": came_from,
                    "attempt": attempts.get(branch, 0),
                    "earlier": attempts.get(branch, 0),
                    "status": ClaimStatus.DONE if branch in done else ClaimStatus.READY,
                    "goes_to": [clean_json(lead.to_json()) for lead in done[branch]]
                    if branch in done
                    else None,
                    "publishes": 1,
                    "wake_at": func.now() + seconds(0 if branch in done else republish),
                }
                for branch, task in enumerate(tasks)
            ]
        )
    )


def end_run(session: Session, run_id: int, state: dict[str, Any]) -> None:
    """Write the disposition that the graph came to."""
    disposition = state.get("disposition")
    if disposition not in (RunStatus.ANSWERED, RunStatus.GAVE_UP):
        fail_run(session, run_id, "graph: no_disposition: the graph ended without saying how")
        return
    answered = disposition == RunStatus.ANSWERED
    if answered and not isinstance(state.get("answer"), str):
        fail_run(session, run_id, "graph: no_answer: the graph ended as answered without an answer")
        return
    session.execute(
        update(Run)
        .where(Run.id == run_id, Run.status == RunStatus.RUNNING)
        .values(
            status=disposition,
            answer=clean_text(state["answer"]) if answered else None,
            reason=None if answered else clean_json(state.get("reason") or "no reason was given"),
            sources=clean_json(state.get("sources", [])) if answered else None,
            web_used=used_the_web(state),
            notes=clean_json(state.get("notes", [])),
            ended_at=func.clock_timestamp(),
            reuse_key=reuse_runs.key_at_the_end(state),
        )
    )


def used_the_web(state: dict[str, Any]) -> bool:
    """Whether what the answer was made from held a result of a web search."""
    kept = [*state.get("web_documents", []), *state.get("knowledge", [])]
    return any(document["origin"] == "web" for document in kept)


def fail_run(session: Session, run_id: int, error: str) -> None:
    session.execute(delete(Claim).where(Claim.run_id == run_id))
    session.execute(
        update(Run)
        .where(Run.id == run_id, Run.status == RunStatus.RUNNING)
        .values(status=RunStatus.FAILED, error=error, ended_at=func.clock_timestamp())
    )


def first_error(session: Session, run: LockedRun, step: int) -> str:
    """`node: error` of the lowest branch of a step that failed in this round."""
    row = session.execute(
        select(Transition.node, Transition.error)
        .where(
            Transition.month == run.month,
            Transition.run_id == run.run_id,
            Transition.step == step,
            Transition.round == run.course.round,
            Transition.status == TransitionStatus.FAILED,
        )
        .order_by(Transition.branch)
        .limit(1)
    ).one_or_none()
    return f"{row.node}: {row.error}" if row else "a branch failed without a record"
