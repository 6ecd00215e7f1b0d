"""The nodes that only Self-RAG has: whether to retrieve at all, and its bounded rewriting.

Asai et al. 2023, "Self-RAG", arXiv:2310.11511, section 3, in the form of the tutorials: the reflection
tokens are verdicts of separate graders.
"""

from typing import Any

from workers.nodes.resources import Resources
from workers.nodes.retrieve import noted_if_none
from workers.nodes.state import SelfRagState


def assess(state: SelfRagState, resources: Resources) -> dict[str, Any]:
    """Writes `query` and `retrieval_needed`: no for a question that needs no document."""
    route = resources.router.route(state["question"], state["params"]["description"], web=False)
    return {"retrieval_needed": route != "direct"}


def retrieve_again(state: SelfRagState, resources: Resources) -> dict[str, Any]:
    """Writes `query`, `documents` and counts `retrievals`."""
    query = state.get("query") or state["question"]
    documents = resources.retriever.retrieve(query, state["params"]["k"])
    update: dict[str, Any] = {
        "query": query,
        "documents": documents,
        "retrievals": state.get("retrievals", 0) + 1,
    }
    return update | noted_if_none(state, documents)


def rewrite_for_store(state: SelfRagState, resources: Resources) -> dict[str, Any]:
    """Writes a `query` unlike the ones before, and counts `rewrites`."""
    query = resources.query_rewriter.rewrite(
        state["question"],
        target="vectorstore",
        description=state["params"]["description"],
        feedback=state.get("tried", []),
    )
    return {"query": query, "rewrites": state.get("rewrites", 0) + 1}
