"""Corrective RAG: grade what was retrieved, and correct the retrieval before answering.

START -> retrieve -+=> grade_document x k (chord) -> decide
                   +-> decide                          nothing was retrieved

decide -+=> refine_document x kept (chord) -> recompose -+
        +------------------------------------------------+
                                                         |
         +-> generate -> END                  enough is known
         +-> rewrite_query -> web_search -+   the decision asks for the web, and it is on
         +-> web_search ------------------+   ... with rewriting off
         +-> give_up -> END               |   nothing is known, and there is no web
                                          |
web_search -+-> generate -> END  <--------+
            +-> give_up  -> END               neither store nor web had anything
"""

from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from shared.queue import CONTROL, MODELS, RETRIEVAL, WEB
from workers.graphs.fan_out import each_document
from workers.graphs.node import add_node
from workers.nodes.decide import SEARCHING, decide
from workers.nodes.fallbacks import question_as_query
from workers.nodes.generate import generate_from_knowledge, give_up
from workers.nodes.grade_document import grade_document
from workers.nodes.refine import recompose, refine_document
from workers.nodes.retrieve import retrieve
from workers.nodes.rewrite_query import rewrite_query
from workers.nodes.state import CragState
from workers.nodes.web_search import web_search, web_search_failed


def after_retrieve(state: CragState) -> list[Send] | str:
    return each_document("grade_document", state["documents"], state) or "decide"


def after_decide(state: CragState) -> list[Send] | str:
    if state["params"]["refine"] == "on" and state["knowledge"]:
        return each_document("refine_document", state["knowledge"], state)
    return after_recompose(state)


def after_recompose(state: CragState) -> str:
    wants_web = state["decision"]["action"] in SEARCHING or not state["knowledge"]
    if wants_web and state["params"]["web_search"] == "on":
        return "rewrite_query" if state["params"]["rewrite"] == "on" else "web_search"
    return "generate" if state["knowledge"] else "give_up"


def after_web_search(state: CragState) -> str:
    return "generate" if state["knowledge"] or state["web_documents"] else "give_up"


def build() -> "StateGraph[Any, Any, Any, Any]":
    builder = StateGraph(CragState)
    add_node(builder, "retrieve", retrieve, queue=RETRIEVAL)
    add_node(builder, "grade_document", grade_document, queue=MODELS, skip_when_enough=True)
    add_node(builder, "decide", decide, queue=CONTROL)
    add_node(builder, "refine_document", refine_document, queue=MODELS)
    add_node(builder, "recompose", recompose, queue=CONTROL)
    add_node(builder, "rewrite_query", rewrite_query, queue=MODELS, fallback=question_as_query)
    add_node(builder, "web_search", web_search, queue=WEB, fallback=web_search_failed)
    add_node(builder, "generate", generate_from_knowledge, queue=MODELS)
    add_node(builder, "give_up", give_up, queue=CONTROL)

    onward = ["generate", "rewrite_query", "web_search", "give_up"]
    builder.add_edge(START, "retrieve")
    builder.add_conditional_edges("retrieve", after_retrieve, ["grade_document", "decide"])
    builder.add_edge("grade_document", "decide")
    builder.add_conditional_edges("decide", after_decide, ["refine_document", *onward])
    builder.add_edge("refine_document", "recompose")
    builder.add_conditional_edges("recompose", after_recompose, onward)
    builder.add_edge("rewrite_query", "web_search")
    builder.add_conditional_edges("web_search", after_web_search, ["generate", "give_up"])
    builder.add_edge("generate", END)
    builder.add_edge("give_up", END)
    return builder
