"""Whatever order messages come in, doubled, late or never, and wherever workers die: the history is that of
one who did everything once, and every run comes to the end that it would have come to in a calm.

`make chaos` tries many more ways than the suite.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from sqlalchemy import Engine

from shared import control, rework
from shared.errors import Conflict
from shared.rework import Chosen
from tests.integration.runner.any_order import CALM, JOIN, PLACES, Fate, Held, Message, World, registered
from tests.integration.runner.bench import at_once
from workers.runner import reconcile
from workers.runner.advance import Publication

which = st.integers(0, 30)  # taken modulo what there is
places = st.sampled_from(PLACES)
# Most nodes do well, or nothing would get far.
troubles = st.sampled_from(["fine"] * 5 + ["transient", "permanent", "postponed", "dies", "overrun"])
deliveries = st.tuples(which, st.builds(Fate, troubles, places))


class AnyOrder(RuleBasedStateMachine):
    """Messages are a list from which the rules take as they like; the rest is the real runner on Postgres."""

    database: Engine  # set by a subclass: hypothesis makes the machines

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.database)
        self.bench = self.world.bench
        self.messages: list[Message] = []
        self.past: list[Message] = []  # delivered once
        self.held: list[Held] = []
        self.batches: list[int] = []
        self.graph_of: dict[int, str] = {}

    # -- work --------------------------------------------------------------------------------------------
    @initialize(
        graphs=st.lists(st.sampled_from(sorted(CALM)), min_size=1, max_size=2),
        reuse=st.sampled_from(["off", "all"]),
    )
    def begin_with(self, graphs: list[str], reuse: str) -> None:
        self.bench.settings = self.bench.settings.model_copy(update={"reuse": reuse})
        for graph in graphs:
            batch = self.bench.submit(["One?", "Two?"], graph, **PARAMS)
            self.batches.append(batch)
            ids = self.bench.rows("SELECT id FROM runs WHERE batch_id = :b", b=batch)
            self.graph_of |= {row.id: graph for row in ids}
        self._publish(*self.bench.admit())

    @rule(count=st.integers(2, 8))
    def work_goes_on(self, count: int) -> None:
        """As on a good day: in order, and nothing happens."""
        self._deliver([(0, Fate())] * count)

    @rule(several=st.lists(deliveries, min_size=2, max_size=6))
    def work_goes_on_in_any_order(self, several: list[tuple[int, Fate]]) -> None:
        self._deliver(several)

    @rule(at=which, what=st.sampled_from(["dropped", "once more", "strange", "two at once"]))
    def a_message_goes_astray(self, at: int, what: str) -> None:
        if what in ("dropped", "two at once") and self.messages:
            message = self._take(at)
            if what == "two at once":
                for result in at_once([lambda: self.world.run(message)] * 2):
                    if isinstance(result, BaseException):
                        raise result
                    self._publish(*result)
        elif self.past:
            past = self.past[at % len(self.past)]
            if what == "strange":
                past = Message(past.run, past.step + at % 3 - 1, past.branch + 1)
            self._publish(*self.world.run(past))

    # -- workers in the middle of a node ---------------------------------------------------------------------
    @precondition(lambda self: self.messages)
    @rule(several=st.lists(st.tuples(which, places, st.booleans()), min_size=1, max_size=3))
    def workers_begin(self, several: list[tuple[int, str, bool]]) -> None:
        for at, where, overtaken in several:
            if self.messages and len(self.held) < 3:
                message = self._take(at)
                if message.branch == JOIN:
                    self._publish(*self.world.run(message))
                else:
                    self._begin(message, where)
                    if overtaken and self.held:
                        self.a_worker_is_overtaken(len(self.held) - 1, where, "fine", True)

    @precondition(lambda self: self.held)
    @rule(at=which, what=troubles)
    def a_worker_ends(self, at: int, what: str) -> None:
        self._finish(what, at)

    @precondition(lambda self: self.held)
    @rule(at=which, where=places, what=troubles, meanwhile=st.booleans())
    def a_worker_is_overtaken(self, at: int, where: str, what: str, meanwhile: bool) -> None:
        """It is slow, not dead: its claim is given to another. `meanwhile`: it ends while that one works."""
        slow = self.held.pop(at % len(self.held))
        self.bench.lose(slow.message.run)
        reconcile.take_back_lost(self.bench.engine)
        self._begin(slow.message, where)
        self.held.insert(0, slow)
        if meanwhile:
            self._finish(what, 0)

    @precondition(lambda self: self.held)
    @rule(at=which, verb=st.sampled_from([control.pause, control.cancel]))
    def a_batch_is_stopped_under_a_worker(self, at: int, verb: Any) -> None:
        run = self.held[at % len(self.held)].message.run
        self._perhaps(verb, int(self.bench.run_row(run).batch_id))
        self._finish("fine", at)

    @rule(at=which, noticed=st.booleans())
    def leases_run_out(self, at: int, noticed: bool) -> None:
        self.bench.lose(self._run(at))
        if noticed:
            reconcile.take_back_lost(self.bench.engine)

    # -- healing -----------------------------------------------------------------------------------------
    @rule(late=st.booleans(), forgotten=st.booleans())
    def a_tick(self, late: bool, forgotten: bool) -> None:
        """Of the dispatcher and the reconciler. `late`: all have waited long; `forgotten`: by Redis."""
        if late:
            self.bench.overdue()
        if forgotten:
            self.messages.clear()
            reconcile.make_all_due(self.bench.engine)
        self._publish(*self.bench.admit())
        reconcile.take_back_lost(self.bench.engine)
        due = reconcile.due(self.bench.engine, self.bench.settings)
        self.messages += [Message(one.run_id, one.step, branch, solo=True) for one, branch in due]
        self._publish(*reconcile.join_overdue(self.bench.engine, self.bench.settings))

    # -- what people do ------------------------------------------------------------------------------------
    @rule(at=which, verb=st.sampled_from([control.pause, control.resume, control.resume, control.cancel]))
    def somebody_acts(self, at: int, verb: Any) -> None:
        self._perhaps(verb, self._batch(at))

    @rule(at=which, from_failed_node=st.booleans())
    def somebody_retries(self, at: int, from_failed_node: bool) -> None:
        chosen = Chosen(("failed", "cancelled", "answered"))
        self._perhaps(rework.retry, self._batch(at), chosen, from_failed_node=from_failed_node)
        self._publish(*self.bench.admit())

    @precondition(lambda self: len(self.batches) < 4)
    @rule(at=which, step=st.integers(1, 4))
    def somebody_forks(self, at: int, step: int) -> None:
        run = self._run(at)
        forked = self._perhaps(rework.fork, run, step, self.bench.settings)
        if forked is not None:
            self.batches.append(forked.batch_id)
            self.graph_of[forked.run_id] = self.graph_of[run]
            self._publish(*self.bench.admit())

    # -- what must hold ------------------------------------------------------------------------------------
    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Everything is healed by the reconciler alone; what people or faults ended is taken up again."""
        try:
            while self.held:
                self._finish("fine")
            for batch in self.batches:
                self._perhaps(control.resume, batch)
            self._drain()
            again = [
                self._perhaps(rework.retry, one, Chosen(("failed", "cancelled"))) for one in self.batches
            ]
            if any(again):
                self._drain()
            ends = {row.status for row in self.bench.rows("SELECT status FROM runs")}
            assert ends <= {"answered"}
        finally:
            for held in self.held:
                held.leave.set()
            self.world.forget()

    # -- inside ------------------------------------------------------------------------------------------
    def _drain(self) -> None:
        for run in self.graph_of:
            self.bench.lose(run)  # the dead have been missed for long enough
        self.bench.heal()
        self.world.check()
        self.world.check_end(self.graph_of)

    def _deliver(self, several: list[tuple[int, Fate]]) -> None:
        for at, fate in several:
            if self.messages:
                self.world.fate = fate
                self._publish(*self.world.run(self._take(at)))
                self.world.fate = Fate()

    def _take(self, at: int) -> Message:
        message = self.messages.pop(at % len(self.messages))
        self.past.append(message)
        return message

    def _begin(self, message: Message, where: str) -> None:
        held = self.world.begin(message, where)
        self.held.append(held)
        if not held.at_work:
            self._finish("fine")

    def _finish(self, what: str, at: int = -1) -> None:
        self._publish(*self.world.finish(self.held.pop(at % len(self.held)), what))

    def _publish(self, *publications: Publication) -> None:
        for one in publications:
            branches = [*range(len(one.nodes)), *([JOIN] if len(one.nodes) > 1 else [])]
            self.messages += [Message(one.run_id, one.step, branch) for branch in branches]

    def _run(self, at: int) -> int:
        return sorted(self.graph_of)[at % len(self.graph_of)]

    def _batch(self, at: int) -> int:
        return self.batches[at % len(self.batches)]

    def _perhaps(self, act: Any, *args: Any, **values: Any) -> Any:
        """What an act came to; None where it is not possible now."""
        try:
            return act(self.bench.engine, *args, actor="kim", **values)
        except Conflict:
            return None


# Shrinking takes minutes; of a short try the steps that failed are printed all the same.
SHORT = settings(
    max_examples=10,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
LONG = settings(SHORT, max_examples=300, phases=tuple(Phase))
PARAMS = {"enough_relevant": 1, "max_steps": 60}


def machine_on(database: Engine) -> type[AnyOrder]:
    class Here(AnyOrder):
        pass

    Here.database = database
    return Here


@pytest.mark.parametrize("place", PLACES)
def test_who_was_overtaken_ends_while_the_other_works(database: Engine, place: str) -> None:
    """One of the orders, and the rarest to be found by chance: both have run the node, and one counts."""
    with registered():
        machine = machine_on(database)()
        try:
            machine.begin_with(["line"], "off")
            machine.workers_begin([(0, place, True), (0, place, False)])
            machine.holds()
            assert any(held.at_work for held in machine.held)
        finally:
            machine.teardown()


def test_no_order_of_messages_and_mishaps_changes_what_comes_of_a_batch(database: Engine) -> None:
    with registered():
        run_machine(
            machine_on(database), settings=LONG if settings.get_current_profile_name() == "chaos" else SHORT
        )
