"""What cannot run as Celery tasks is refused when the adapter is made, by an error that names `graph.node`."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

import pytest
from langgraph.channels.topic import Topic
from langgraph.graph import END, START, StateGraph
from langgraph.managed import RemainingSteps
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send
from pydantic import BaseModel

from shared.queue import MODELS, QUEUES
from workers.graphs import BUILDERS
from workers.graphs.node import add_node
from workers.runner.graph_adapter import GraphAdapter, NodeBroke, UnsupportedGraph

METADATA = {"queue": MODELS, "timeout": 5.0}


class State(TypedDict, total=False):
    word: str
    log: Annotated[list[str], operator.add]


def says(_state: Any) -> dict[str, Any]:
    return {"word": "said"}


def graph(node: Any = says, *, name: str = "worker", schema: Any = State, **options: Any) -> Any:
    """START -> worker -> END, with `options` of add_node."""
    builder = StateGraph(schema)
    builder.add_node(name, node, **{"metadata": METADATA, **options})
    builder.add_edge(START, name)
    builder.add_edge(name, END)
    return builder


def test_the_plain_graph_of_these_tests_is_accepted() -> None:
    adapter = GraphAdapter("p", graph())
    assert adapter.run_node("worker", {}, None) == {"word": "said"}  # type: ignore[arg-type]
    assert adapter.nodes == ("worker",)
    assert adapter.task_name("worker") == "p.worker"
    assert (adapter.queue("worker"), adapter.timeout("worker")) == (MODELS, 5.0)


@pytest.mark.parametrize("pipeline", sorted(BUILDERS))
def test_the_real_graphs_are_accepted_and_every_node_has_queue_and_timeout(pipeline: str) -> None:
    adapter = GraphAdapter(pipeline, BUILDERS[pipeline]())
    for node in adapter.nodes:
        assert adapter.queue(node) in QUEUES
        assert 0 < adapter.timeout(node) < 600, "a claim must not outlive the broker's visibility timeout"


def goes(_state: State) -> Command[Literal["worker"]]:
    return Command(goto="worker")


def uses_runtime(_state: State, runtime: Runtime[Any]) -> dict[str, Any]:
    return {"word": str(runtime)}


def uses_store(_state: State, *, store: BaseStore) -> dict[str, Any]:
    return {"word": str(store)}


async def only_async(_state: State) -> dict[str, Any]:
    return {"word": "later"}


def goes_on(_state: State, _resources: Any) -> Command[Literal["worker"]]:
    return Command(goto="worker")


def ours(function: Any) -> Any:
    builder = StateGraph(State)
    add_node(builder, "worker", function, queue=MODELS)
    builder.add_edge(START, "worker")
    builder.add_edge("worker", END)
    return builder


NODES: dict[str, tuple[Callable[[], Any], str]] = {
    "command annotation": (lambda: graph(goes), "a node that returns a Command"),
    "command destinations": (lambda: graph(says, destinations=("worker",)), "a node that returns a Command"),
    "command through our own add_node": (lambda: ours(goes_on), "a node that returns a Command"),
    "subgraph": (lambda: graph(graph().compile()), "a subgraph"),
    "retry policy": (lambda: graph(retry_policy=RetryPolicy()), "retry_policy"),
    "retry policies": (lambda: graph(retry_policy=[RetryPolicy(), RetryPolicy()]), "retry_policy"),
    "cache policy": (lambda: graph(cache_policy=CachePolicy()), "cache_policy"),
    "deferred": (lambda: graph(defer=True), "defer"),
    "no metadata": (lambda: graph(metadata=None), "without a queue"),
    "no queue": (lambda: graph(metadata={"timeout": 5.0}), "without a queue"),
    "unknown queue": (lambda: graph(metadata={"queue": "gpu", "timeout": 5.0}), "without a queue"),
    "no timeout": (lambda: graph(metadata={"queue": MODELS}), "without a timeout"),
    "timeout of nothing": (lambda: graph(metadata={"queue": MODELS, "timeout": 0}), "without a timeout"),
    "runtime": (lambda: graph(uses_runtime), "takes LangGraph's runtime"),
    "store": (lambda: graph(uses_store), "takes LangGraph's store"),
    "async only": (lambda: graph(only_async), "only async"),
}


@pytest.mark.parametrize("case", NODES)
def test_a_node_is_refused_by_name(case: str) -> None:
    build, what = NODES[case]
    with pytest.raises(UnsupportedGraph) as refused:
        GraphAdapter("p", build())
    assert str(refused.value).startswith("p.worker: ")
    assert what in str(refused.value)


def test_a_node_named_like_the_join_is_refused() -> None:
    with pytest.raises(UnsupportedGraph, match=r"^p\.join: "):
        GraphAdapter("p", graph(name="join"))


def test_one_bad_node_among_good_ones_is_the_one_that_is_named() -> None:
    builder = graph()
    builder.add_node("other", says, metadata=METADATA, defer=True)
    builder.add_edge("worker", "other")
    with pytest.raises(UnsupportedGraph, match=r"^p\.other: LangGraph's own defer"):
        GraphAdapter("p", builder)


def test_a_waiting_edge_is_refused_with_both_its_ends() -> None:
    builder = StateGraph(State)
    for name in ("left", "right", "after"):
        builder.add_node(name, says, metadata=METADATA)
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    builder.add_edge(["left", "right"], "after")
    with pytest.raises(UnsupportedGraph, match=r"^p\.after: a waiting edge \(from left, right\)"):
        GraphAdapter("p", builder)


class WithTopic(TypedDict, total=False):
    word: str
    talk: Annotated[list[str], Topic(str)]


class WithManaged(TypedDict, total=False):
    word: str
    left: RemainingSteps


class Pydantic(BaseModel):
    word: str = ""


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (WithTopic, "the state key 'talk' with a Topic channel"),
        (WithManaged, r"managed values \(left\)"),
        (Pydantic, "the state Pydantic, which is no TypedDict"),
        (dict, "the state dict, which is no TypedDict"),
    ],
)
def test_a_state_of_another_kind_is_refused(schema: Any, what: str) -> None:
    with pytest.raises(UnsupportedGraph, match=f"^p: {what}"):
        GraphAdapter("p", graph(schema=schema))


def test_a_compiled_graph_is_refused_because_it_may_carry_interrupts() -> None:
    with pytest.raises(UnsupportedGraph, match=r"^p: a CompiledStateGraph instead of a StateGraph"):
        GraphAdapter("p", graph().compile(interrupt_before=["worker"]))


# -- what only shows at run time: an error of the node, which ends as its `failed` transition -------------


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (Command(update={"word": "x"}), "a Command"),
        (None, "NoneType"),
        ([{"word": "x"}], "list"),
        ("word", "str"),
    ],
)
def test_a_node_that_returns_no_update_is_named(returned: Any, what: str) -> None:
    adapter = GraphAdapter("p", graph(lambda _state: returned))
    with pytest.raises(NodeBroke, match=rf"^p\.worker returned {what}"):
        adapter.run_node("worker", {}, None)  # type: ignore[arg-type]


def test_a_key_that_is_not_in_the_state_is_named() -> None:
    adapter = GraphAdapter("p", graph(lambda _state: {"wrod": "x", "word": "y"}))
    with pytest.raises(NodeBroke, match=r"^p\.worker returned keys that are not in the state: wrod$"):
        adapter.run_node("worker", {}, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", float("nan"), float("-inf"), object(), [{"deep": {1}}]])
def test_a_value_that_is_no_json_is_named_before_it_reaches_the_database(value: Any) -> None:
    adapter = GraphAdapter("p", graph(lambda _state: {"word": value}))
    with pytest.raises(NodeBroke, match=r"^p\.worker returned 'word', which is no JSON value"):
        adapter.run_node("worker", {}, None)  # type: ignore[arg-type]


def leading(path: Callable[[State], Any], path_map: Any = None) -> GraphAdapter:
    builder = StateGraph(State)
    builder.add_node("worker", says, metadata=METADATA)
    builder.add_node("other", says, metadata=METADATA)
    builder.add_edge(START, "worker")
    builder.add_conditional_edges("worker", path, path_map)
    builder.add_edge("other", END)
    return GraphAdapter("p", builder)


@pytest.mark.parametrize(
    ("target", "what"),
    [
        (Send("nowhere", {}), "'nowhere', which is no node"),
        ("nowhere", "'nowhere', which is no node"),
        (Send(END, {"word": "x"}), "'__end__' a state"),
        (Send("other", None), "'other' nothing"),
        (Send("other", {"word": {1}}), "'other', which is no JSON value"),
    ],
)
def test_a_target_that_cannot_be_a_task_is_named(target: Any, what: str) -> None:
    adapter = leading(lambda _state: [target])
    with pytest.raises(NodeBroke, match=rf"^p\.worker (leads|sends) to {what}"):
        adapter.next_steps("worker", {})


def test_a_choice_that_the_path_map_lacks_is_not_followed_even_if_it_is_a_node() -> None:
    adapter = leading(lambda _state: "other", {"yes": "other", "no": END})
    with pytest.raises(NodeBroke, match=r"^p\.worker leads to 'other', which its path map lacks"):
        adapter.next_steps("worker", {})
