"""Where an admitted run begins: at the first node, at the step where it is to be retried, or where it was forked.

The tasks of a step are not stored once it is over; they are worked out again from what the step before left
in the history, as they were the first time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from shared.course import Segment
from shared.statuses import TransitionStatus
from shared.tables import Transition
from workers.runner.advance import LockedRun, fold, input_of, load_state
from workers.runner.graph_adapter import GraphAdapter, Next, NodeBroke


@dataclass(frozen=True)
class Entry:
    step: int
    tasks: list[Next]  # by branch; empty: the graph is at its end
    came_from: list[str]
    attempts: dict[int, int] = field(default_factory=dict)  # by branch: made in earlier rounds
    done: dict[int, list[Next]] = field(default_factory=dict)  # by branch: succeeded before; what it led to


def entry(session: Session, adapter: GraphAdapter, run: LockedRun, step: int) -> Entry:
    """`step`: as it was while the run was pending; one of its present course is entered again.

    Raises NodeBroke when the history does not lead there, because it was dropped or the graph has changed.
    """
    if step < run.course.first_step:
        tasks, came_from = _tasks(session, adapter, run, run.course.first_step)
        return Entry(run.course.first_step, tasks, came_from)
    tasks, came_from = _tasks(session, adapter, run, step)
    here = Segment(run.run_id, run.month, step, step + 1)
    attempts: dict[int, int] = {}
    done: dict[int, list[Next]] = {}
    rows = _rows(session, here)
    state = load_state(session, adapter, run, before=step)
    for row in rows:
        if row.branch >= len(tasks) or row.node != tasks[row.branch].node:
            raise NodeBroke(
                f"step {step} branch {row.branch} was {row.node}, but the graph has changed since"
            )
        attempts[row.branch] = max(row.attempt, attempts.get(row.branch, 0))
        if row.status == TransitionStatus.SUCCEEDED:
            done[row.branch] = adapter.next_steps(row.node, adapter.merge(state, [row.state_update or {}]))
    return Entry(step, tasks, came_from, attempts, done)


def _tasks(
    session: Session, adapter: GraphAdapter, run: LockedRun, step: int
) -> tuple[list[Next], list[str]]:
    """The tasks of a step, and the nodes that led to them."""
    state = input_of(adapter, run.question, run.plan)
    segments = run.course.segments(run.run_id, run.month, step)
    if not segments:
        return adapter.first_steps(state), ["__start__"]
    last = segments[-1]
    left = replace(last, first=last.before - 1)  # the step that was left for this one
    state = fold(session, adapter, state, [*segments[:-1], replace(last, before=left.first)])
    kept = (TransitionStatus.SUCCEEDED, TransitionStatus.SKIPPED)
    by_branch = {row.branch: row for row in _rows(session, left) if row.status in kept}  # the latest of each
    if not by_branch:
        raise NodeBroke(
            f"step {left.first} of run {left.run_id}, on which this builds, is not in the history"
        )
    leads = [_leads(adapter, row, state) for _, row in sorted(by_branch.items())]
    return adapter.superstep(leads), sorted({row.node for row in by_branch.values()})


def _leads(adapter: GraphAdapter, row: Any, state: dict[str, Any]) -> list[Next]:
    if row.status == TransitionStatus.SKIPPED:
        return adapter.next_steps(row.node, {})
    return adapter.next_steps(row.node, adapter.merge(state, [row.state_update or {}]))


def _rows(session: Session, where: Segment) -> Sequence[Any]:
    """All attempts at the one step of `where`, by branch and attempt."""
    return session.execute(
        select(
            Transition.branch, Transition.attempt, Transition.node, Transition.status, Transition.state_update
        )
        .where(
            Transition.month == where.month,
            Transition.run_id == where.run_id,
            Transition.step == where.first,
        )
        .order_by(Transition.branch, Transition.attempt)
    ).all()
