"""Run one claimed node: claim -> run -> commit -> what to publish next.

No transaction is open while the node runs. Whatever happens inside the node ends as a row; nothing is
raised to Celery, because a header task that raises takes its chord with it.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog
from sqlalchemy import Engine, insert
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from shared.clean import clean_json
from shared.db import AWAY, commit_patiently, transaction
from shared.errors import Postponed, TransientError
from shared.settings import Settings
from shared.statuses import TransitionStatus
from shared.tables import Grade
from workers.runner import advance, claims
from workers.runner.claims import LostClaim, Won
from workers.runner.graph_adapter import GraphAdapter, Next
from workers.runner.heartbeat import Heartbeat
from workers.runner.ledger import Ledger, describe
from workers.runner.limits.gate import Gate
from workers.runner.limits.limiter import Limiter
from workers.runner.pipelines import adapters
from workers.runner.resources import ResourceFactory

log = structlog.get_logger()


class Executor:
    """What runs nodes in one worker process."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        resources: ResourceFactory,
        heartbeat: Heartbeat,
        worker: str,
        limiter: Limiter | None = None,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._resources = resources
        self._heartbeat = heartbeat
        self._worker = worker
        self._gate = Gate(engine, settings, limiter)
        self._one_suspect = threading.Lock()

    def run(
        self, run_id: int, step: int, branch: int, task_id: str
    ) -> tuple[advance.Publication | None, bool]:
        """Run the node of (run, step, branch) if it can be claimed.

        Returns what is to be published next, and whether the branch of a fan-out is over (done or failed).
        """
        with transaction(self._engine) as session:
            won = claims.win(
                session,
                run_id,
                step,
                branch,
                task_id=task_id,
                worker=self._worker,
                lease=self._settings.lease_seconds,
            )
            if won is None:
                return None, False
            adapter = adapters()[won.plan.pipeline]
            if adapter.skips_when_enough(won.node) and claims.has_enough(session, won):
                self._skip(session, won, adapter)
                return None, True
        with structlog.contextvars.bound_contextvars(run_id=run_id, step=step, branch=branch, node=won.node):
            try:
                with self._quarantine(won) as free, self._heartbeat.holding(won, adapter.timeout(won.node)):
                    if not free:
                        raise Postponed(self._settings.retry_base, "another suspect runs")
                    outcome = self._run_node(won, adapter)
            except Postponed as later:
                self._put_back(won, later)
                return None, False
            return self._settle(won, outcome), True

    def _skip(self, session: Session, won: Won, adapter: GraphAdapter) -> None:
        """Leave a branch out: it costs nothing, changes nothing, and the join goes on without it."""
        goes_to = adapter.next_steps(won.node, {})
        claims.mark_done(
            session, won, [step.to_json() for step in goes_to], join_grace=self._settings.heartbeat_seconds
        )
        claims.add_transition(
            session,
            won,
            TransitionStatus.SKIPPED,
            goes_to=[step.node for step in goes_to],
            error_text="not begun: enough documents were relevant",
        )

    @contextmanager
    def _quarantine(self, won: Won) -> Iterator[bool]:
        """A claim that was lost with its worker may be what killed it. Such claims run one at a time in a
        process, and of one step the most often lost first: so the innocent ones get through, and a guilty
        one comes to its last attempt without taking its neighbours along. Those lost once only run freely
        where they could be lost once more: one by one, all that a killed worker had would take a minute."""
        if not won.lost or (won.lost == 1 and won.tries <= won.plan.max_attempts - 2):
            yield True
            return
        free = self._one_suspect.acquire(blocking=False)
        try:
            yield free and self._is_first_suspect(won)
        finally:
            if free:
                self._one_suspect.release()

    def _is_first_suspect(self, won: Won) -> bool:
        with transaction(self._engine) as session:
            return claims.is_first_suspect(session, won)

    def _put_back(self, won: Won, later: Postponed) -> None:
        log.debug("postponed", seconds=round(later.seconds, 1), why=later.why)

        def put_back(session: Session, _again: bool) -> None:
            claims.put_back(session, won, pause=later.seconds, failing=later.failing)

        with suppress(LostClaim):
            commit_patiently(self._engine, put_back)

    def _state(self, won: Won, adapter: GraphAdapter) -> dict[str, Any]:
        """The run's state before this step, where it is needed."""
        # A branch that got its own argument and leads to one place needs none: its join folds it.
        # A lone one has no join: it enters the next step, or ends the run, itself.
        if won.argument is not None and won.width > 1 and not adapter.routes_by_state(won.node):
            return {}
        with transaction(self._engine) as session:
            return advance.load_state(session, adapter, won, before=won.step)

    def _run_node(self, won: Won, adapter: GraphAdapter) -> "Outcome":
        ledger = Ledger(self._engine, won, self._gate)
        state: dict[str, Any] = {}
        try:
            state = self._state(won, adapter)
            resources = self._resources.make(won.plan, ledger)
            seen = state if won.argument is None else won.argument
            update = adapter.run_node(won.node, seen, resources, last_attempt=won.last_attempt)
            merged = adapter.merge(state, [update])
            return Outcome(ledger, update, merged, adapter.next_steps(won.node, merged), None)
        except AWAY as error:  # storing a call: no fault of the node's
            away = TransientError("the database was away", code="database", where="postgres")
            log.warning("the database was away", error=type(error).__name__)
            return Outcome(ledger, {}, state, [], away)
        except Postponed:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a node raises is a row, never a lost chord
            if not isinstance(error, TransientError):
                log.warning("node failed", error=describe(error))
            return Outcome(ledger, {}, state, [], error)

    def _settle(self, won: Won, outcome: "Outcome") -> advance.Publication | None:
        try:
            try:
                return self._commit(won, outcome)
            except (DataError, IntegrityError) as error:  # a result that no try could store
                log.warning("the result cannot be stored", error=describe(error))
                return self._commit(won, Outcome(outcome.ledger, {}, outcome.state, [], error))
        except LostClaim:
            log.info("claim was lost; result dropped")
        return None

    def _commit(self, won: Won, outcome: "Outcome") -> advance.Publication | None:
        """Waits for a database that is away: the work is done. A try whose answer was lost with the connection
        looks like a lost claim to the next one, and what it left to publish is published by the reconciler."""
        following: list[advance.Publication | None] = []

        def commit(session: Session, _again: bool) -> None:
            following.clear()
            if outcome.error is None:
                following.append(self._succeeded(session, won, outcome))
            else:
                self._failed(session, won, outcome.error, outcome.ledger.usage())

        commit_patiently(self._engine, commit)
        return following[0] if following else None

    def _succeeded(self, session: Session, won: Won, outcome: "Outcome") -> advance.Publication | None:
        # The run's row first, then the claim: everybody who needs both takes them in this order.
        run = self._lock(session, won) if won.width == 1 else None
        goes_to = [step.to_json() for step in outcome.goes_to]
        claims.mark_done(session, won, clean_json(goes_to), join_grace=self._settings.heartbeat_seconds)
        claims.add_transition(
            session,
            won,
            TransitionStatus.SUCCEEDED,
            goes_to=[step.node for step in outcome.goes_to] or ["__end__"],
            state_update=outcome.update,
            usage=outcome.ledger.usage(),
        )
        outcome.ledger.write_buffered(session)
        add_grades(session, won, outcome.update)
        if run is None:
            return None
        tasks = adapters()[won.plan.pipeline].superstep([outcome.goes_to])
        return advance.enter(
            session,
            run,
            won.step,
            tasks,
            [won.node],
            outcome.state,
            self._settings.republish_seconds,
        )

    @staticmethod
    def _lock(session: Session, won: Won) -> advance.LockedRun:
        run = advance.lock_run(session, won.run_id, won.step)
        if run is None:
            raise LostClaim("the run has ended or moved on")
        return run

    def _failed(self, session: Session, won: Won, error: Exception, usage: claims.Usage) -> None:
        if won.width == 1:
            self._lock(session, won)
        text = describe(error)
        if isinstance(error, TransientError) and not (won.last_attempt and error.counts):
            pause = pause_after(won.tries, error.retry_after, self._settings)
            text += "" if error.counts else " (not counted)"
            claims.mark_for_retry(session, won, pause, forgiven=not error.counts)
            claims.add_transition(
                session, won, TransitionStatus.RETRIED, usage=usage, error=error, error_text=text
            )
            return
        if isinstance(error, TransientError):
            text = f"{text} (after {_attempts(won)})"
        claims.mark_failed(session, won)
        claims.add_transition(
            session, won, TransitionStatus.FAILED, usage=usage, error=error, error_text=text
        )
        if won.width == 1:
            advance.fail_run(session, won.run_id, f"{won.node}: {text}")
        else:
            claims.skip_waiting(session, won)


def _attempts(won: Won) -> str:
    more = f", and {won.forgiven} that did not count" if won.forgiven else ""
    return f"{won.tries} attempts{more}"


class Outcome:
    """What came of running a node: an update, or an error."""

    def __init__(
        self,
        ledger: Ledger,
        update: dict[str, Any],
        state: dict[str, Any],
        goes_to: list[Next],
        error: Exception | None,
    ) -> None:
        self.ledger = ledger
        self.update = update
        self.state = state
        self.goes_to = goes_to
        self.error = error


def pause_after(attempt: int, retry_after: float | None, settings: Settings) -> float:
    """Seconds until the next attempt: what the provider asked for, else doubled each time, with jitter."""
    if retry_after is not None:
        return max(0.0, retry_after) + random.uniform(0, 0.5)  # noqa: S311 - spreading, not secrecy
    longest: float = min(settings.retry_cap, settings.retry_base * 2.0 ** min(attempt - 1, 60))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311


def add_grades(session: Session, won: Won, update: dict[str, Any]) -> None:
    """An update's `grades` are also rows, so that SQL can ask about them. One document a branch."""
    rows = [
        {
            "batch_id": won.batch_id,
            "run_id": won.run_id,
            "step": won.step,
            "branch": won.branch + at,
            **clean_json(grade),
        }
        for at, grade in enumerate(update.get("grades", []))
    ]
    if rows:
        session.execute(insert(Grade), rows)
