"""Small graphs that do what the real pipelines do not, to try the runner with."""

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from shared.queue import CONTROL
from workers.graphs.node import add_node


class State(TypedDict, total=False):
    question: str
    params: dict[str, Any]
    last: str  # no reducer
    log: Annotated[list[str], operator.add]
    notes: Annotated[list[str], operator.add]
    answer: Any
    disposition: str
    reason: str


Node = Callable[[Any, Any], dict[str, Any]]


def says(**update: Any) -> Node:
    return lambda _state, _resources: update


def ends(answer: Any = "done") -> dict[str, Any]:
    return {"answer": answer, "disposition": "answered"}


def one(node: Node) -> Any:
    """START -> work -> END."""
    builder = StateGraph(State)
    add_node(builder, "work", node, queue=CONTROL)
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    return builder


def fan_out(branch: Node, width: int, last: Node | None = None) -> Any:
    """START -> spread => item x width -> last -> END, or the items lead to the end themselves."""
    builder = StateGraph(State)
    add_node(builder, "spread", says(log=["spread"]), queue=CONTROL)
    add_node(builder, "item", branch, queue=CONTROL)
    builder.add_edge(START, "spread")
    builder.add_conditional_edges(
        "spread", lambda _state: [Send("item", {"at": at}) for at in range(width)], ["item"]
    )
    if last is None:
        builder.add_edge("item", END)
        return builder
    add_node(builder, "last", last, queue=CONTROL)
    builder.add_edge("item", "last")
    builder.add_edge("last", END)
    return builder


def circle() -> Any:
    """A loop that never ends by itself."""
    builder = StateGraph(State)
    add_node(builder, "round", says(log=["again"], notes=["round: one more"]), queue=CONTROL)
    builder.add_edge(START, "round")
    builder.add_conditional_edges("round", lambda _state: "round", ["round", END])
    return builder
