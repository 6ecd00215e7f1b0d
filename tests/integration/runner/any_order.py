"""The world of the property test: graphs whose answer is known, paid calls that are watched, and what
must hold after whatever happens to messages and workers.
"""

import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from sqlalchemy import Engine, event

from shared.errors import PermanentError, Postponed, TransientError
from shared.queue import CONTROL
from shared.statuses import DISPOSITIONS
from tests.integration.runner import graphs
from tests.integration.runner.bench import Bench, pipeline
from workers.graphs.node import add_node
from workers.models.roles import CallResult, CallSpec
from workers.runner import reconcile
from workers.runner.advance import Publication

BEFORE, WITHIN, AFTER = "before the call", "within the call", "after the call"
PLACES = (BEFORE, WITHIN, AFTER)


JOIN = -1  # in the place of a branch: the chord's body


@dataclass(frozen=True)
class Message:
    run: int
    step: int
    branch: int
    solo: bool = False  # published outside a chord: the last of its step wakes the join itself


class WorkerDied(BaseException):
    """As if by kill -9: nothing of the runner may answer it, and nothing more reaches the database."""


@dataclass(frozen=True)
class Fate:
    """What befalls a node, and where in it. `what`: fine, transient, permanent, postponed, dies, overrun."""

    what: str = "fine"
    where: str = BEFORE


@dataclass
class Held:
    """A worker in the middle of a node. `go(fate)` lets it go on."""

    message: Message
    inside: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)
    fate: Fate = field(default_factory=Fate)
    thread: threading.Thread | None = None
    result: Any = None  # what `Executor.run` returned
    failure: BaseException | None = None

    @property
    def at_work(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


# -- graphs -------------------------------------------------------------------------------------------------


class State(graphs.State, total=False):
    turns: int
    at: int
    grades: Annotated[list[Any], operator.add]


def _work(name: str) -> graphs.Node:
    def node(state: Any, tools: Any) -> dict[str, Any]:
        at = state.get("at", "")
        return {"log": [tools.call(f"{name}{at}")]}

    return node


def _item(state: Any, tools: Any) -> dict[str, Any]:
    return {"log": [tools.call(f"item{state['turns']}.{state['at']}")]}


def _graded(state: Any, tools: Any) -> dict[str, Any]:
    tools.call(f"graded{state['at']}")
    grade = {"document_id": str(state["at"]), "title": "t", "source": "s", "label": "relevant", "score": 0.9}
    return {"grades": [{**grade, "model": "m", "prompt_version": "v"}]}


def _turn(state: Any, tools: Any) -> dict[str, Any]:
    turns = state.get("turns", 0) + 1
    return {"turns": turns, "log": [tools.call(f"turn{turns}")]}


def _end(state: Any, tools: Any) -> dict[str, Any]:
    log = " ".join(state.get("log", []))
    return graphs.ends(f"{log} {tools.call('end')}")


def _graph(*nodes: tuple[str, graphs.Node], skipping: str = "") -> Any:
    builder = StateGraph(State)
    for name, node in nodes:
        add_node(builder, name, node, queue=CONTROL, skip_when_enough=name == skipping)
    builder.add_edge(START, nodes[0][0])
    builder.add_edge("end", END)
    return builder


def line() -> Any:
    """first -> end."""
    builder = _graph(("first", _work("first")), ("end", _end))
    builder.add_edge("first", "end")
    return builder


def loop() -> Any:
    """turn => item x 2 -> turn => item x 2 -> turn -> end."""
    builder = _graph(("turn", _turn), ("item", _item), ("end", _end))

    def path(state: Any) -> Any:
        if state["turns"] > 2:
            return "end"
        return [Send("item", {"turns": state["turns"], "at": at}) for at in range(2)]

    builder.add_conditional_edges("turn", path, ["item", "end"])
    builder.add_edge("item", "turn")
    return builder


def enough() -> Any:
    """first => graded x 3, of which one is enough -> end."""
    builder = _graph(("first", _work("first")), ("graded", _graded), ("end", _end), skipping="graded")
    builder.add_conditional_edges(
        "first", lambda _state: [Send("graded", {"at": at}) for at in range(3)], ["graded"]
    )
    builder.add_edge("graded", "end")
    return builder


GRAPHS: dict[str, Callable[[], Any]] = {"line": line, "loop": loop, "enough": enough}
CALM = {  # every call answers with its name in capitals
    "line": "FIRST END",
    "loop": "TURN1 ITEM1.0 ITEM1.1 TURN2 ITEM2.0 ITEM2.1 TURN3 END",
    "enough": "FIRST END",
}


@contextmanager
def registered() -> Iterator[None]:
    with ExitStack() as stack:
        for name, make in GRAPHS.items():
            stack.enter_context(pipeline(name, make()))
        yield


# -- the world ----------------------------------------------------------------------------------------------


class World:
    """A bench whose workers can be held, killed and overtaken in the middle of a node."""

    def __init__(self, database: Engine) -> None:
        self.bench = Bench(database, lease_seconds=600, heartbeat_seconds=1)
        self.bench.make_resources = lambda _plan, recorder: _Tools(self, recorder)  # type: ignore[assignment, return-value]
        event.listen(database, "before_cursor_execute", self._bury)
        self.fate = Fate()  # of the next node that runs in the test's own thread
        self.broken: set[int] = set()  # runs in which a node failed for good
        self.wrong: list[str] = []  # what a call found that must not be
        self.ended: dict[tuple[int, int], tuple[Any, ...]] = {}  # by (run, round), as first seen

    @staticmethod
    def _bury(*_args: Any) -> None:
        """Before each statement: `finally` blocks run in a thread that dies here, as they would not in a kill."""
        if _mine.dead:
            raise WorkerDied

    def run(self, message: Message) -> list[Publication]:
        """Deliver a message here and now; what is published then. Nothing where the worker dies."""
        if message.branch == JOIN:
            return self._join(message)
        try:
            return self._published(message, *self.bench.run(message.run, message.step, message.branch))
        except WorkerDied:
            return []
        finally:
            _mine.dead = False

    def _join(self, message: Message) -> list[Publication]:
        following = self.bench.join(message.run, message.step)
        return [] if following is None else [following]

    def _published(self, message: Message, following: Publication | None, over: bool) -> list[Publication]:
        if following is not None:
            return [following]
        return self._join(message) if over and message.solo else []

    def begin(self, message: Message, where: str) -> Held:
        """A worker that takes the message and stops at `where`; one that had nothing to do is through already."""
        held = Held(message, fate=Fate("fine", where))

        def work() -> None:
            _mine.held = held
            try:
                held.result = self.bench.run(message.run, message.step, message.branch)
            except BaseException as failure:  # noqa: BLE001 - looked at by `finish`
                held.failure = failure
            finally:
                held.inside.set()

        held.thread = threading.Thread(target=work, daemon=True)
        held.thread.start()
        assert held.inside.wait(30), "a worker hangs"
        if not held.thread.is_alive():
            held.thread.join()
        return held

    def finish(self, held: Held, what: str) -> list[Publication]:
        """Let a held worker go on; what is published then."""
        held.fate = Fate(what, held.fate.where)
        held.leave.set()
        assert held.thread is not None
        held.thread.join(30)
        assert not held.thread.is_alive(), "a worker hangs"
        if held.failure is not None and not isinstance(held.failure, WorkerDied):
            raise held.failure
        return [] if held.result is None else self._published(held.message, *held.result)

    def at(self, place: str, recorder: Any) -> None:
        """Called by a node at each place: what is meant to befall it there, does."""
        held: Held | None = getattr(_mine, "held", None)
        if held is None:
            if self.fate.where == place:
                fate, self.fate = self.fate, Fate()
                self._befall(fate.what, recorder._won.run_id)
        elif held.fate.where == place and not held.leave.is_set():
            held.inside.set()
            assert held.leave.wait(60)
            self._befall(held.fate.what, recorder._won.run_id)

    def _befall(self, what: str, run_id: int) -> None:
        match what:
            case "transient":
                raise TransientError("busy", code="busy", where="here")
            case "permanent":
                self.broken.add(run_id)
                raise PermanentError("no", code="bad", where="here")
            case "postponed":
                raise Postponed(0.0, "not now")
            case "dies":
                _mine.dead = True
                raise WorkerDied
            case "overrun":  # its lease runs out, and the claim is given to the next
                self.bench.lose(run_id)
                reconcile.take_back_lost(self.bench.engine)

    # -- what must hold ------------------------------------------------------------------------------------
    def check(self) -> None:
        """After whatever happened."""
        assert self.wrong == []
        assert self.bench.rows(_MISFITS) == []
        for row in self.bench.rows("SELECT * FROM runs WHERE ended_at IS NOT NULL"):
            now = (row.status, row.answer, row.reason, row.error, row.ended_at, row.step)
            assert self.ended.setdefault((row.id, row.round), now) == now, f"run {row.id} ended twice"

    def check_end(self, graph_of: dict[int, str]) -> None:
        """Once all has ended: each run as in a calm, unless it was cancelled, or broken, or out of attempts."""
        assert self.bench.rows("SELECT * FROM claims") == []
        for row in self.bench.rows("SELECT * FROM runs"):
            assert row.status in DISPOSITIONS
            if row.status == "answered":
                assert row.answer == CALM[graph_of[row.id]]
            elif row.status == "failed":
                tried = self.bench.one(_TRIES, r=row.id, n=row.round).n
                assert row.id in self.broken or tried >= self.bench.settings.max_attempts, row.error
            else:
                assert row.status == "cancelled"

    def forget(self) -> None:
        """So that the next example finds nothing. Transitions stay; nobody asks for those of runs that are gone."""
        event.remove(self.bench.engine, "before_cursor_execute", self._bury)
        self.bench.execute("DELETE FROM batches")


class _Mine(threading.local):
    held: Held | None = None
    dead = False


_mine = _Mine()


class _Tools:
    """What a node gets: one paid call, watched."""

    def __init__(self, world: World, recorder: Any) -> None:
        self._world = world
        self._recorder = recorder
        self._must_be_open("is begun")

    def call(self, name: str) -> str:
        spec = CallSpec("query_rewriter", "openai", "gpt-4.1-mini", "v1", {"name": name})
        self._world.at(BEFORE, self._recorder)
        answer: str = self._recorder.call(spec, lambda: self._perform(name))
        self._world.at(AFTER, self._recorder)
        return answer

    def _perform(self, name: str) -> CallResult:
        self._must_be_open("is paid")
        won = self._recorder._won
        if self._world.bench.rows(_STORED, r=won.run_id, s=won.step, b=won.branch):
            self._world.wrong.append(f"{name} of {won} is paid again")
        self._world.at(WITHIN, self._recorder)
        return CallResult(name.upper(), 10, 2)

    def _must_be_open(self, what: str) -> None:
        won = self._recorder._won
        (batch,) = self._world.bench.rows("SELECT status FROM batches WHERE id = :b", b=won.batch_id)
        if batch.status != "open":
            self._world.wrong.append(f"{won} {what} although its batch is {batch.status}")


_STORED = "SELECT FROM model_calls WHERE run_id = :r AND step = :s AND branch = :b AND status = 'ok'"
_TRIES = """
SELECT coalesce(max(n), 0) AS n FROM (
    SELECT count(*) AS n FROM transitions WHERE run_id = :r AND round = :n
     GROUP BY step, branch) AS each
"""
# In one query, because it is asked after every step. No run is lost; of each branch one attempt a round counts;
# steps and attempts have no gaps, the attempt under way included; claims are those of the run's step, as many as
# it is wide; and a call that was stored is stored once.
_MISFITS = """
WITH history AS (
    SELECT transitions.* FROM transitions JOIN runs ON runs.id = transitions.run_id),
counting AS (SELECT * FROM history WHERE status IN ('succeeded', 'failed', 'skipped'))
SELECT run_id, NULL AS step, NULL AS branch, what FROM lost_runs
UNION ALL
SELECT run_id, step, branch, 'two attempts count' FROM counting
 GROUP BY run_id, step, branch, round HAVING count(*) > 1
UNION ALL
SELECT run_id, step, branch, 'succeeded twice' FROM counting WHERE status = 'succeeded'
 GROUP BY run_id, step, branch HAVING count(*) > 1
UNION ALL
SELECT runs.id, max(own.step), NULL, 'steps' FROM runs
  JOIN LATERAL (SELECT DISTINCT history.step FROM history WHERE run_id = runs.id) AS own ON true
 GROUP BY runs.id, runs.inherited
HAVING min(own.step) <> coalesce((runs.inherited -> -1 ->> 'before')::int, 1)
    OR max(own.step) - min(own.step) + 1 <> count(*)
UNION ALL
SELECT run_id, step, branch, 'attempts' FROM history
 GROUP BY run_id, step, branch HAVING count(*) <> max(attempt) OR count(DISTINCT attempt) <> count(*)
UNION ALL
SELECT claims.run_id, claims.step, claims.branch, 'attempt of its claim'
  FROM claims
 CROSS JOIN LATERAL (
       SELECT count(*) AS n, bool_or(status = 'skipped' AND attempt = claims.attempt + 1) AS unbegun
         FROM history WHERE (run_id, step, branch) = (claims.run_id, claims.step, claims.branch)) AS made
 WHERE made.n <> CASE WHEN claims.status = 'running' THEN claims.attempt - 1
                      WHEN claims.status = 'failed' AND made.unbegun THEN claims.attempt + 1
                      ELSE claims.attempt END
UNION ALL
SELECT runs.id, runs.step, NULL, 'claims' FROM runs
 CROSS JOIN LATERAL (
       SELECT count(*) AS n, max(width) AS width, min(claims.step) AS low, max(claims.step) AS high
         FROM claims WHERE run_id = runs.id) AS has
 WHERE CASE runs.status WHEN 'running' THEN (has.n, has.low, has.high) <> (has.width, runs.step, runs.step)
                        ELSE has.n > 0 END
UNION ALL
SELECT run_id, step, branch, 'paid twice' FROM model_calls WHERE status = 'ok' AND response IS NOT NULL
 GROUP BY run_id, step, branch HAVING count(*) > 1
"""
