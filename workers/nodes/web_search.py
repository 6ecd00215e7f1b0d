"""Search the web for what the store did not have."""

from typing import Any

from shared.errors import CallError, PermanentError
from workers.nodes.resources import Resources
from workers.nodes.state import CragState


def web_search(state: CragState, resources: Resources) -> dict[str, Any]:
    """Writes `web_documents` and `web_status`. Without a key in this process it is a permanent error."""
    if resources.web_search is None:
        raise PermanentError("this worker has no Tavily key", code="no_key", where="tavily")
    query = state["query"] if state["params"]["rewrite"] == "on" else state["question"]
    documents = resources.web_search.search(query, state["params"]["web_k"])
    update: dict[str, Any] = {"web_documents": documents, "web_status": "ok" if documents else "empty"}
    if not documents:
        update["notes"] = ["web_search_empty: the web search found nothing"]
    return update


def web_search_failed(_state: CragState, error: CallError) -> dict[str, Any]:
    """What stands in for the search once it has failed for good: the run goes on without the web."""
    return {
        "web_documents": [],
        "web_status": "failed",
        "web_error": error.code,
        "notes": [f"web_search_failed: {error.code}: {error}"],
    }
