"""Self-RAG: retrieve, grade, answer, and judge the answer before it is given.

    START -+-> retrieve <-----------------------------------+
           +-> assess -+-> retrieve                         |      decide_retrieval=on
                       +-> answer_directly -+-> accept      |
                                            +-> give_up     |
    retrieve -+=> grade_document x new (chord) -> select    |
              +-> select                                    |      every document has its grade
    select -+-> generate                                    |
            +-> rewrite_query ------------------------------+      nothing relevant, rewrites left
            +-> give_up
    generate -+-> check_groundedness -+-> check_answer -+-> accept -> END
              |                       +-> generate      +-> rewrite_query      does not answer
              |                       +-> give_up       +-> give_up
              +-> rewrite_query / give_up                          the documents hold no answer

Both loops are bounded: `max_rewrites` and `max_generations`, over the whole run.
"""

from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from shared.queue import CONTROL, MODELS, RETRIEVAL
from workers.graphs.fan_out import each_document
from workers.graphs.node import add_node
from workers.nodes.draft import (
    accept,
    answer_directly,
    check_answer,
    check_groundedness,
    draft_answer,
    give_up_with_tries,
    may_draft,
)
from workers.nodes.fallbacks import assume_retrieval, counted_question_as_query
from workers.nodes.grade_document import grade_document
from workers.nodes.select import select, ungraded
from workers.nodes.self_rag import assess, retrieve_again, rewrite_for_store
from workers.nodes.state import SelfRagState


def after_start(state: SelfRagState) -> str:
    return "assess" if state["params"]["decide_retrieval"] == "on" else "retrieve"


def after_assess(state: SelfRagState) -> str:
    return "retrieve" if state["retrieval_needed"] else "answer_directly"


def after_direct(state: SelfRagState) -> str:
    return "accept" if state["draft"] else "give_up"


def after_retrieve(state: SelfRagState) -> list[Send] | str:
    return each_document("grade_document", ungraded(state), state) or "select"


def after_select(state: SelfRagState) -> str:
    return "generate" if state["knowledge"] and may_draft(state) else _search_again(state)


def after_generate(state: SelfRagState) -> str:
    return "check_groundedness" if state["draft"] else _search_again(state)


def after_groundedness(state: SelfRagState) -> str:
    if not state["problem"]:
        return "check_answer"
    return "generate" if may_draft(state) else "give_up"


def after_answer(state: SelfRagState) -> str:
    return "accept" if not state["problem"] else _search_again(state)


def _search_again(state: SelfRagState) -> str:
    left = state.get("rewrites", 0) < state["params"]["max_rewrites"] and may_draft(state)
    return "rewrite_query" if left else "give_up"


def build() -> "StateGraph[Any, Any, Any, Any]":
    builder = StateGraph(SelfRagState)
    add_node(builder, "assess", assess, queue=MODELS, fallback=assume_retrieval)
    add_node(builder, "answer_directly", answer_directly, queue=MODELS)
    add_node(builder, "retrieve", retrieve_again, queue=RETRIEVAL)
    add_node(builder, "grade_document", grade_document, queue=MODELS, skip_when_enough=True)
    add_node(builder, "select", select, queue=CONTROL)
    add_node(builder, "rewrite_query", rewrite_for_store, queue=MODELS, fallback=counted_question_as_query)
    add_node(builder, "generate", draft_answer, queue=MODELS)
    add_node(builder, "check_groundedness", check_groundedness, queue=MODELS)
    add_node(builder, "check_answer", check_answer, queue=MODELS)
    add_node(builder, "accept", accept, queue=CONTROL)
    add_node(builder, "give_up", give_up_with_tries, queue=CONTROL)

    builder.add_conditional_edges(START, after_start, ["assess", "retrieve"])
    builder.add_conditional_edges("assess", after_assess, ["retrieve", "answer_directly"])
    builder.add_conditional_edges("answer_directly", after_direct, ["accept", "give_up"])
    builder.add_conditional_edges("retrieve", after_retrieve, ["grade_document", "select"])
    builder.add_edge("grade_document", "select")
    builder.add_conditional_edges("select", after_select, ["generate", "rewrite_query", "give_up"])
    builder.add_edge("rewrite_query", "retrieve")
    builder.add_conditional_edges(
        "generate", after_generate, ["check_groundedness", "rewrite_query", "give_up"]
    )
    builder.add_conditional_edges(
        "check_groundedness", after_groundedness, ["check_answer", "generate", "give_up"]
    )
    builder.add_conditional_edges("check_answer", after_answer, ["accept", "rewrite_query", "give_up"])
    builder.add_edge("accept", END)
    builder.add_edge("give_up", END)
    return builder
