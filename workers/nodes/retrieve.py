"""Fetch the k documents nearest to the question."""

from typing import Any

from workers.nodes.resources import Resources
from workers.nodes.state import RagState


def retrieve(state: RagState, resources: Resources) -> dict[str, Any]:
    """Writes `query` and `documents`, best first; none at all is a result, not an error."""
    query = state.get("query") or state["question"]
    return {"query": query, "documents": resources.retriever.retrieve(query, state["params"]["k"])}
