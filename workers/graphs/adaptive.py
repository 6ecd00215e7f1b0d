"""Adaptive, self-reflective, corrective: route, search where it fits, extract, answer, judge, learn, fall over.

    START -> route -+-> answer_directly -+-> accept -> END
                    |                    +-> apologise -> END
                    +-> rewrite_query <--------------------------------------------+
    rewrite_query -+-> retrieve   ---+                                             |
                   +-> web_search ---+                                             |
    retrieve, web_search -+=> grade_document x new (chord) -> select               |
                          +-> select                                               |
    select -+=> extract_knowledge x new (chord) -> assemble -+-> generate          |
            +-> assemble         nothing new                 +-> no knowledge      |
            +-> no knowledge                                                       |
    no knowledge -+-> feedback_on_query -> rewrite_query           tries left      |
                  +-> switch_to_web ----------------------------------------------+|
                  +-> apologise                                                    |
    generate -> check_groundedness -> check_answer -> accept                       |
        each may fail: not grounded -> feedback_on_answer -> generate              |
                       no draft, does not answer -> as for no knowledge -----------+

Bounded by `max_retrievals` in the store, as many on the web, and `max_generations` over the whole run.
"""

from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from shared.queue import CONTROL, MODELS, RETRIEVAL, WEB
from workers.graphs.fan_out import each_document
from workers.graphs.node import add_node
from workers.nodes.adaptive import (
    DIRECT,
    VECTORSTORE,
    apologise,
    assemble,
    extract_knowledge,
    feedback_on_answer,
    feedback_on_query,
    rewrite_for_mode,
    route,
    search_store,
    search_web,
    search_web_failed,
    switch_to_web,
    unextracted,
)
from workers.nodes.draft import (
    accept,
    answer_directly,
    check_answer,
    check_groundedness,
    draft_answer,
    may_draft,
)
from workers.nodes.fallbacks import (
    no_feedback,
    nothing_extracted,
    plain_reason,
    question_as_query,
    route_to_store,
)
from workers.nodes.grade_document import grade_document
from workers.nodes.select import select, ungraded
from workers.nodes.state import AdaptiveState


def after_route(state: AdaptiveState) -> str:
    return "answer_directly" if state["mode"] == DIRECT else "rewrite_query"


def after_direct(state: AdaptiveState) -> str:
    return "accept" if state["draft"] else "apologise"


def after_rewrite(state: AdaptiveState) -> str:
    return "retrieve" if state["mode"] == VECTORSTORE else "web_search"


def after_search(state: AdaptiveState) -> list[Send] | str:
    return each_document("grade_document", ungraded(state), state) or "select"


def after_select(state: AdaptiveState) -> list[Send] | str:
    if not state["knowledge"]:
        return _search_again(state)
    return each_document("extract_knowledge", unextracted(state), state) or "assemble"


def after_assemble(state: AdaptiveState) -> str:
    return "generate" if state["knowledge"] else _search_again(state)


def after_generate(state: AdaptiveState) -> str:
    return "check_groundedness" if state["draft"] else _search_again(state)


def after_groundedness(state: AdaptiveState) -> str:
    if not state["problem"]:
        return "check_answer"
    return "feedback_on_answer" if may_draft(state) else "apologise"


def after_answer(state: AdaptiveState) -> str:
    return "accept" if not state["problem"] else _search_again(state)


def _search_again(state: AdaptiveState) -> str:
    params = state["params"]
    if not may_draft(state):
        return "apologise"
    if state["retrievals"] < params["max_retrievals"]:
        return "feedback_on_query"
    if state["mode"] == VECTORSTORE and params["web_search"] == "on":
        return "switch_to_web"
    return "apologise"


def build() -> "StateGraph[Any, Any, Any, Any]":
    builder = StateGraph(AdaptiveState)
    add_node(builder, "route", route, queue=MODELS, fallback=route_to_store)
    add_node(builder, "answer_directly", answer_directly, queue=MODELS)
    add_node(builder, "rewrite_query", rewrite_for_mode, queue=MODELS, fallback=question_as_query)
    add_node(builder, "retrieve", search_store, queue=RETRIEVAL)
    add_node(builder, "web_search", search_web, queue=WEB, fallback=search_web_failed)
    add_node(builder, "grade_document", grade_document, queue=MODELS, skip_when_enough=True)
    add_node(builder, "select", select, queue=CONTROL)
    add_node(builder, "extract_knowledge", extract_knowledge, queue=MODELS, fallback=nothing_extracted)
    add_node(builder, "assemble", assemble, queue=CONTROL)
    add_node(builder, "generate", draft_answer, queue=MODELS)
    add_node(builder, "check_groundedness", check_groundedness, queue=MODELS)
    add_node(builder, "check_answer", check_answer, queue=MODELS)
    add_node(builder, "feedback_on_query", feedback_on_query, queue=MODELS, fallback=no_feedback)
    add_node(builder, "feedback_on_answer", feedback_on_answer, queue=MODELS, fallback=no_feedback)
    add_node(builder, "switch_to_web", switch_to_web, queue=CONTROL)
    add_node(builder, "accept", accept, queue=CONTROL)
    add_node(builder, "apologise", apologise, queue=MODELS, fallback=plain_reason)

    again = ["feedback_on_query", "switch_to_web", "apologise"]
    builder.add_edge(START, "route")
    builder.add_conditional_edges("route", after_route, ["answer_directly", "rewrite_query"])
    builder.add_conditional_edges("answer_directly", after_direct, ["accept", "apologise"])
    builder.add_conditional_edges("rewrite_query", after_rewrite, ["retrieve", "web_search"])
    for search in ("retrieve", "web_search"):
        builder.add_conditional_edges(search, after_search, ["grade_document", "select"])
    builder.add_edge("grade_document", "select")
    builder.add_conditional_edges("select", after_select, ["extract_knowledge", "assemble", *again])
    builder.add_edge("extract_knowledge", "assemble")
    builder.add_conditional_edges("assemble", after_assemble, ["generate", *again])
    builder.add_conditional_edges("generate", after_generate, ["check_groundedness", *again])
    builder.add_conditional_edges(
        "check_groundedness", after_groundedness, ["check_answer", "feedback_on_answer", "apologise"]
    )
    builder.add_conditional_edges("check_answer", after_answer, ["accept", *again])
    builder.add_edge("feedback_on_query", "rewrite_query")
    builder.add_edge("feedback_on_answer", "generate")
    builder.add_edge("switch_to_web", "rewrite_query")
    builder.add_edge("accept", END)
    builder.add_edge("apologise", END)
    return builder
