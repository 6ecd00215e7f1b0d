"""The runner on a real Postgres, with no queue: messages are function calls, and can be lost at will."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event, text

from shared import batches
from shared.db import transaction
from shared.plan import PIPELINES, Plan, make_plan
from shared.settings import Settings
from tests.integration.cluster import read_rows, rows
from tests.unit.workers.nodes.fakes import Script
from workers.models.roles import CallRecorder
from workers.nodes.resources import Resources
from workers.runner import advance, claims, dispatch, reconcile
from workers.runner.advance import Publication
from workers.runner.claims import Won
from workers.runner.execute import Executor
from workers.runner.graph_adapter import GraphAdapter
from workers.runner.heartbeat import Heartbeat
from workers.runner.pipelines import adapters


@contextmanager
def pipeline(name: str, builder: Any) -> Iterator[GraphAdapter]:
    """A graph of a test's own, among the real ones while the block runs."""
    adapters()[name] = adapter = GraphAdapter(name, builder)
    try:
        yield adapter
    finally:
        del adapters()[name]


class Bench:
    """`make` gives a task's resources; by default those of `script`. The clock is moved by `overdue`."""

    def __init__(self, engine: Engine, script: Script | None = None, **values: Any) -> None:
        quick = {"retry_base": 0.01, "retry_cap": 0.02, "openai_api_key": "sk-bench-0123456789"}
        self.settings = Settings(_env_file=None, **{**quick, "tavily_api_key": "tvly-bench", **values})
        self.engine = engine
        self.script = script or Script()
        self.make_resources: Callable[[Plan, CallRecorder], Resources] = lambda plan, recorder: (
            self.script.resources()
        )
        self.heartbeat = Heartbeat(engine, every=3600, lease=self.settings.lease_seconds)
        self.executor = Executor(engine, self.settings, self, self.heartbeat, "bench@test")

    def make(self, plan: Plan, recorder: CallRecorder) -> Resources:
        return self.make_resources(plan, recorder)

    # -- work ------------------------------------------------------------------------------------------
    def plan(self, pipeline: str = "crag", **sets: Any) -> Plan:
        if pipeline in PIPELINES:
            return make_plan(self.settings, pipeline, sets)
        plan = make_plan(self.settings, "rag")
        return plan.model_copy(update={"pipeline": pipeline, "params": {**plan.params, **sets}})

    def submit(self, questions: Iterable[str | None], pipeline: str = "crag", **sets: Any) -> int:
        plan = self.plan(pipeline, **sets)
        return batches.submit(self.engine, plan, "bench", {"format": "txt"}, rows(questions)).batch_id

    def admit(self) -> list[Publication]:
        return dispatch.admit(self.engine, self.settings)

    def start(self, pipeline: str = "crag", question: str = "How old?", **sets: Any) -> int:
        """One run, admitted: its id."""
        batch = self.submit([question], pipeline, **sets)
        self.admit()
        return int(self.one("SELECT id FROM runs WHERE batch_id = :b", b=batch).id)

    def run(self, run_id: int, step: int, branch: int = 0) -> tuple[Publication | None, bool]:
        return self.executor.run(run_id, step, branch, f"task-{run_id}.{step}.{branch}")

    def join(self, run_id: int, step: int) -> Publication | None:
        with transaction(self.engine) as session:
            return advance.join(session, run_id, step, self.settings.republish_seconds)

    def win(self, run_id: int, step: int, branch: int = 0, worker: str = "w") -> Won | None:
        with transaction(self.engine) as session:
            return claims.win(session, run_id, step, branch, task_id="t", worker=worker, lease=20)

    def must_win(self, run_id: int, step: int, branch: int = 0) -> Won:
        won = self.win(run_id, step, branch)
        assert won is not None
        return won

    def to_step(self, run_id: int, step: int) -> None:
        """Run and join everything of a run before `step`."""
        for earlier in range(1, step):
            for claim in self.claims(run_id):
                self.run(run_id, earlier, claim.branch)
            self.join(run_id, earlier)
        assert self.run_row(run_id).step == step

    def heal(self, rounds: int = 100) -> int:
        """Every message is lost: the dispatcher and the reconciler alone bring all runs to their end."""
        for number in range(1, rounds + 1):
            self.admit()
            self.overdue()
            reconcile.take_back_lost(self.engine)
            for publication, branch in reconcile.due(self.engine, self.settings):
                self.run(publication.run_id, publication.step, branch)
            self.overdue()
            reconcile.join_overdue(self.engine, self.settings)
            if not self.rows("SELECT 1 FROM runs WHERE status IN ('pending', 'running')"):
                self.admit()  # ends the batches
                return number
        raise AssertionError(f"open after {rounds} rounds: {self.rows('SELECT * FROM claims')}")

    # -- time and rows ---------------------------------------------------------------------------------
    def overdue(self) -> None:
        """As if everybody had waited long enough."""
        self.execute("UPDATE claims SET wake_at = now() - interval '1 s', not_before = NULL")

    def lose(self, run_id: int) -> None:
        """The workers of this run are not heard of any more."""
        self.execute(
            "UPDATE claims SET lease_until = now() - interval '1 s' WHERE status = 'running' AND run_id = :r",
            r=run_id,
        )

    def execute(self, statement: str, **values: Any) -> None:
        with transaction(self.engine) as session:
            session.execute(text(statement), values)

    def rows(self, query: str, **values: Any) -> list[Any]:
        return read_rows(self.engine, query, **values)

    def one(self, query: str, **values: Any) -> Any:
        (row,) = self.rows(query, **values)
        return row

    def run_row(self, run_id: int) -> Any:
        return self.one("SELECT * FROM runs WHERE id = :r", r=run_id)

    def claims(self, run_id: int) -> list[Any]:
        return self.rows("SELECT * FROM claims WHERE run_id = :r ORDER BY step, branch", r=run_id)

    def transitions(self, run_id: int) -> list[Any]:
        return self.rows(
            "SELECT * FROM transitions WHERE run_id = :r ORDER BY step, branch, attempt", r=run_id
        )


class Cut:
    """Ends the connection at the next commits: before Postgres has seen them, or before it has answered."""

    def __init__(self, engine: Engine, *, seen: bool) -> None:
        self.left = 0
        self._engine = engine
        self._seen = seen
        event.listen(engine, "commit", self)

    def stop(self) -> None:
        event.remove(self._engine, "commit", self)

    def __call__(self, connection: Connection) -> None:
        if self.left:
            self.left -= 1
            raw = connection.connection.dbapi_connection
            assert raw is not None
            if self._seen:
                raw.commit()
            raw.close()


def sound(bench: Bench) -> None:
    """No run is lost, steps have no gaps, and of each branch in each round one attempt at the most counts."""
    assert bench.rows("SELECT * FROM lost_runs") == []
    for row in bench.rows("SELECT id, inherited FROM runs"):
        steps = {one.step for one in bench.transitions(row.id)}
        first = row.inherited[-1]["before"] if row.inherited else 1
        assert steps == set(range(first, first + len(steps))), f"run {row.id} has steps {sorted(steps)}"
    counting = "SELECT FROM transitions WHERE status IN ('succeeded', 'failed', 'skipped')"
    assert not bench.rows(f"{counting} GROUP BY run_id, step, branch, round HAVING count(*) > 1")
    succeeded = "SELECT FROM transitions WHERE status = 'succeeded'"
    assert not bench.rows(f"{succeeded} GROUP BY run_id, step, branch HAVING count(*) > 1")
    assert not bench.rows(
        "SELECT FROM claims JOIN runs ON runs.id = claims.run_id WHERE runs.status <> 'running'"
    )


def at_once(actions: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of all actions, begun in the same moment on a thread each; an exception is a result."""
    barrier = threading.Barrier(len(actions))
    results: list[Any] = [None] * len(actions)

    def perform(at: int) -> None:
        barrier.wait()
        try:
            results[at] = actions[at]()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results[at] = error

    threads = [threading.Thread(target=perform, args=(at,)) for at in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "an action hangs"
    return results
