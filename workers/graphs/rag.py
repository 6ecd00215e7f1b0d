"""The plain baseline, so that the gain of correction can be measured.

START -> retrieve -+-> generate -> END
                   +-> give_up  -> END      nothing was retrieved
"""

from typing import Any

from langgraph.graph import END, START, StateGraph

from shared.queue import CONTROL, MODELS, RETRIEVAL
from workers.graphs.node import add_node
from workers.nodes.generate import generate, give_up
from workers.nodes.retrieve import retrieve
from workers.nodes.state import RagState


def after_retrieve(state: RagState) -> str:
    return "generate" if state["documents"] else "give_up"


def build() -> "StateGraph[Any, Any, Any, Any]":
    builder = StateGraph(RagState)
    add_node(builder, "retrieve", retrieve, queue=RETRIEVAL)
    add_node(builder, "generate", generate, queue=MODELS)
    add_node(builder, "give_up", give_up, queue=CONTROL)
    builder.add_edge(START, "retrieve")
    builder.add_conditional_edges("retrieve", after_retrieve, ["generate", "give_up"])
    builder.add_edge("generate", END)
    builder.add_edge("give_up", END)
    return builder
