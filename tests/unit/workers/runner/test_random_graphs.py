"""Any graph of edges, conditional edges and Sends takes the same way through the adapter as in LangGraph."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict
from zlib import crc32

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from shared.queue import MODELS
from tests.unit.workers.runner.driver import drive, langgraph
from workers.runner.graph_adapter import GraphAdapter, NodeBroke

# Out of alphabetical order, so that the order of declaration and the order by name differ.
NAMES = ("d", "b", "e", "a", "c")
LIMIT = 12  # log entries after which every conditional edge ends


class State(TypedDict, total=False):
    seed: int
    item: int
    last: str  # no reducer: two writers in one step are an error
    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]


def _dice(*parts: Any) -> int:
    return crc32(repr(parts).encode())


def _node(name: str, writes_last: bool) -> Callable[[State], dict[str, Any]]:
    def run(state: State) -> dict[str, Any]:
        seen = f"{name}/{len(state.get('log', []))}/{state.get('item')}/{state.get('last')}"
        update: dict[str, Any] = {"log": [seen], "total": _dice(seen) % 7}
        if writes_last and _dice("last", seen) % 3 == 0:
            update["last"] = seen
        return update

    return run


def _path(name: str, number: int, targets: list[str], kind: str) -> Callable[[State], Any]:
    """`kind`: what it returns: one name, a list of names, Sends, or names and Sends mixed."""

    def choose(state: State) -> Any:
        log = state.get("log", [])
        dice = _dice(state.get("seed"), name, number, len(log), state.get("last"), state.get("total"))
        if len(log) > LIMIT or dice % 5 == 0:
            return END
        picked = targets[dice % len(targets)]
        sends = [Send(picked, {"item": at, "seed": state.get("seed", 0)}) for at in range(dice % 4)]
        if kind == "name":
            return picked
        if kind == "names":
            return [target for at, target in enumerate(targets) if dice >> at & 1] or [END]
        return sends if kind == "sends" else [*sends[:1], picked, *sends[1:]]

    return choose


@st.composite
def graphs(draw: st.DrawFn) -> GraphAdapter:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    builder: Any = StateGraph(State)
    for name in names:
        metadata = {"queue": MODELS, "timeout": 5.0}
        builder.add_node(name, _node(name, draw(st.booleans())), metadata=metadata)
    for start in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)):
        builder.add_edge(START, start)
    for at, name in enumerate(names):
        # Plain edges only go forward, because nothing would end a circle of them.
        for target in draw(st.lists(st.sampled_from((*names[at + 1 :], END)), max_size=2, unique=True)):
            builder.add_edge(name, target)
        for number in range(draw(st.integers(0, 2))):
            targets = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
            kind = draw(st.sampled_from(("name", "names", "sends", "mixed")))
            path_map = draw(st.sampled_from((None, [*targets, END])))
            path = _path(name, number, targets, kind)
            path.__name__ = f"path_{name}_{number}"
            builder.add_conditional_edges(name, path, path_map)
    return GraphAdapter("random", builder)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(adapter=graphs(), seed=st.integers(0, 1000))
def test_same_path_and_same_state_as_langgraph(adapter: GraphAdapter, seed: int) -> None:
    values = {"seed": seed, "log": ["input"]}
    try:
        expected = langgraph(adapter, values)
    except InvalidUpdateError:
        refused = False
        try:
            drive(adapter, values, seed=seed)
        except NodeBroke:
            refused = True
        assert refused, "LangGraph refuses two writes to a key without a reducer, and the adapter did not"
        return
    assert drive(adapter, values, seed=seed) == expected
