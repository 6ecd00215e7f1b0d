"""The four operations of the adapter, each against what LangGraph itself does."""

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.errors import InvalidUpdateError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from shared.queue import MODELS
from tests.unit.workers.runner.driver import drive, langgraph
from workers.runner.graph_adapter import GraphAdapter, Next, NodeBroke

METADATA = {"queue": MODELS, "timeout": 5.0}


def longest(left: str, right: str) -> str:
    return max(left, right, key=len)


class State(TypedDict, total=False):
    word: str
    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]
    longest: Annotated[str, longest]
    maybe: Annotated[int | None, lambda left, right: (left or 0) + (right or 0)]


def nodes(*names: str, **functions: Any) -> Any:
    """A builder with a node for each name, which writes its name to the log."""
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, lambda _state, name=name: {"log": [name]}, metadata=METADATA)
    for name, function in functions.items():
        builder.add_node(name, function, metadata=METADATA)
    return builder


def adapt(builder: Any) -> GraphAdapter:
    return GraphAdapter("p", builder)


@pytest.fixture(scope="module")
def plain() -> GraphAdapter:
    builder = nodes("only")
    builder.add_edge(START, "only")
    return adapt(builder)


# -- input_state and merge --------------------------------------------------------------------------------


def test_the_input_state_has_every_reducers_empty_value_and_no_other_key(plain: GraphAdapter) -> None:
    assert plain.input_state({"word": "hello"}) == {"word": "hello", "log": [], "total": 0, "longest": ""}


def test_the_input_goes_through_the_reducers(plain: GraphAdapter) -> None:
    assert plain.input_state({"log": ["given"], "total": 3})["log"] == ["given"]
    assert plain.input_state({"maybe": 2})["maybe"] == 2


def test_input_states_share_nothing(plain: GraphAdapter) -> None:
    first = plain.input_state({})
    first["log"].append("mine")
    assert plain.input_state({})["log"] == []


def test_a_reducer_that_works_in_place_changes_neither_the_state_before_nor_other_runs() -> None:
    class InPlace(TypedDict, total=False):
        log: Annotated[list[str], operator.iadd]

    builder = StateGraph(InPlace)
    builder.add_node("only", lambda _state: {"log": ["x"]}, metadata=METADATA)
    builder.add_edge(START, "only")
    adapter = adapt(builder)
    before = adapter.input_state({})
    assert adapter.merge(before, [{"log": ["a"]}]) == {"log": ["a"]}
    assert adapter.merge({}, [{"log": ["b"]}]) == {"log": ["b"]}
    assert before == {"log": []} == adapter.input_state({})


def test_updates_are_folded_in_the_order_they_are_given(plain: GraphAdapter) -> None:
    state = {"log": ["a"], "total": 1}
    merged = plain.merge(state, [{"log": ["b"], "total": 2}, {"longest": "xyz"}, {"log": ["c"]}])
    assert merged == {"log": ["a", "b", "c"], "total": 3, "longest": "xyz"}
    assert state == {"log": ["a"], "total": 1}, "the state before is not touched"


def test_a_later_value_replaces_an_earlier_one_where_there_is_no_reducer(plain: GraphAdapter) -> None:
    assert plain.merge({"word": "old"}, [{"word": "new"}]) == {"word": "new"}
    assert plain.merge({"word": "old"}, [{"word": None}]) == {"word": None}
    assert plain.merge({"word": "old"}, []) == {"word": "old"}


def test_a_known_none_is_a_value_of_a_reducer_too(plain: GraphAdapter) -> None:
    assert plain.merge({"maybe": None}, [{"maybe": 2}, {"maybe": 3}]) == {"maybe": 5}
    assert plain.merge({}, [{"maybe": 2}, {"maybe": 3}]) == {"maybe": 5}


def test_two_writes_of_one_step_to_a_key_without_reducer_are_refused_by_name(plain: GraphAdapter) -> None:
    with pytest.raises(NodeBroke, match=r"^p: 2 branches wrote 'word' in one step"):
        plain.merge({}, [{"word": "a"}, {"log": ["x"]}, {"word": "a"}])


def test_langgraph_refuses_the_same_two_writes() -> None:
    builder = nodes(left=lambda _s: {"word": "l"}, right=lambda _s: {"word": "r"})
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    adapter = adapt(builder)
    with pytest.raises(InvalidUpdateError):
        langgraph(adapter, {})
    with pytest.raises(NodeBroke):
        drive(adapter, {})


# -- next_steps and superstep -----------------------------------------------------------------------------


def test_plain_edges_lead_to_each_target_and_end_is_left_out() -> None:
    builder = nodes("a", "b", "c")
    builder.add_edge(START, "a")
    for target in ("c", "b", END):
        builder.add_edge("a", target)
    adapter = adapt(builder)
    assert adapter.first_steps({}) == [Next("a")]
    assert {step.node for step in adapter.next_steps("a", {})} == {"b", "c"}
    assert adapter.next_steps("b", {}) == []
    assert not adapter.routes_by_state("a")


@pytest.mark.parametrize(
    ("choice", "leads"),
    [
        ("yes", [Next("b")]),
        (True, [Next("c")]),
        ("stop", []),
        (["yes", True], [Next("b"), Next("c")]),
        (("stop", "yes"), [Next("b")]),
        (
            [Send("b", {"word": "x"}), True, Send("b", {})],
            [Next("b", {"word": "x"}), Next("c"), Next("b", {})],
        ),
        ([], []),
    ],
)
def test_a_conditional_edge_goes_through_its_path_map(choice: Any, leads: list[Next]) -> None:
    builder = nodes("a", "b", "c")
    builder.add_edge(START, "a")
    builder.add_conditional_edges("a", lambda _state: choice, {"yes": "b", True: "c", "stop": END})
    adapter = adapt(builder)
    assert adapter.next_steps("a", {}) == leads
    assert adapter.routes_by_state("a")


def test_a_conditional_edge_sees_the_state_it_is_given() -> None:
    builder = nodes("a", "b")
    builder.add_edge(START, "a")
    builder.add_conditional_edges("a", lambda state: "b" if state["total"] > 1 else END)
    adapter = adapt(builder)
    assert adapter.next_steps("a", {"total": 2}) == [Next("b")]
    assert adapter.next_steps("a", {"total": 1}) == []


def test_several_conditional_edges_and_a_plain_one_all_count() -> None:
    def one(_state: State) -> str:
        return "b"

    def sends(_state: State) -> list[Send]:
        return [Send("c", {"word": "s"})]

    builder = nodes("a", "b", "c", "d")
    builder.add_edge(START, "a")
    builder.add_edge("a", "d")
    builder.add_conditional_edges("a", one)
    builder.add_conditional_edges("a", sends)
    assert adapt(builder).next_steps("a", {}) == [Next("d"), Next("b"), Next("c", {"word": "s"})]


def test_a_conditional_entry_is_the_first_step() -> None:
    builder = nodes("a", "b")
    builder.add_conditional_edges(START, lambda state: [Send("b", {"word": w}) for w in state["word"]])
    adapter = adapt(builder)
    assert adapter.first_steps({"word": "xy"}) == [Next("b", {"word": "x"}), Next("b", {"word": "y"})]


def test_a_superstep_has_plain_nodes_once_and_by_name_then_every_send_as_it_comes() -> None:
    leads = [
        [Next("z"), Next("s", {"n": 1})],
        [Next("a"), Next("z"), Next("a", {"n": 2})],
        [],
        [Next("s", {}), Next("s", {"n": 1})],
    ]
    assert GraphAdapter.superstep(leads) == [
        Next("a"),
        Next("z"),
        Next("s", {"n": 1}),
        Next("a", {"n": 2}),
        Next("s", {}),
        Next("s", {"n": 1}),
    ]
    assert GraphAdapter.superstep([[], []]) == []


def test_an_empty_send_is_not_taken_for_a_plain_node() -> None:
    step = Next.from_json(Next("s", {}).to_json())
    assert step.argument == {} and GraphAdapter.superstep([[step], [step]]) == [step, step]


# -- whole graphs -----------------------------------------------------------------------------------------


def test_plain_parallel_edges_and_sends_in_one_step_are_applied_in_langgraphs_order() -> None:
    """The names are out of order on purpose: `z_first` is declared before `a_last`, twelve Sends pass ten."""
    builder = nodes(
        "z_first",
        "a_last",
        "end",
        spread=lambda _s: {"log": ["spread"]},
        item=lambda task: {"log": [f"item {task['word']}"], "total": 1},
    )
    builder.add_edge(START, "spread")
    builder.add_edge("spread", "z_first")
    builder.add_edge("spread", "a_last")
    builder.add_conditional_edges("spread", lambda _s: [Send("item", {"word": str(n)}) for n in range(12)])
    for name in ("z_first", "a_last", "item"):
        builder.add_edge(name, "end")
    adapter = adapt(builder)
    expected = langgraph(adapter, {"word": "w"})
    for seed in range(5):
        assert drive(adapter, {"word": "w"}, seed=seed) == expected
    path, state = expected
    assert path[1] == ["a_last", *["item"] * 12, "z_first"]
    assert state["log"] == ["spread", "a_last", "z_first", *[f"item {n}" for n in range(12)], "end"]


def test_a_branch_routes_by_the_state_before_the_step_and_its_own_update_only() -> None:
    builder = nodes("b", item=lambda task: {"total": task["total"]}, start=lambda _s: {"total": 10})
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", lambda _s: [Send("item", {"total": n}) for n in (1, 2, 3)])
    builder.add_conditional_edges(
        "item", lambda state: Send("b", {"word": str(state["total"])}) if state["total"] != 12 else END
    )
    adapter = adapt(builder)
    expected = langgraph(adapter, {})
    assert drive(adapter, {}) == expected
    assert expected[0] == [["start"], ["item"] * 3, ["b", "b"]]
    assert expected[1]["total"] == 16
