"""Fetch the k documents nearest to the question."""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.filters import as_text
from workers.models.roles import Document
from workers.nodes.resources import Resources
from workers.nodes.state import RagState


def retrieve(state: RagState, resources: Resources) -> dict[str, Any]:
    """Writes `query` and `documents`, best first; none at all is a result, not an error, and noted when
    the filter or the choice of words may be why."""
    query, params = state.get("query") or state["question"], state["params"]
    documents = resources.retriever.retrieve(query, params["k"])
    return {"query": query, "documents": documents} | noted_if_none(state, documents)


def noted_if_none(state: RagState, documents: Sequence[Document]) -> dict[str, Any]:
    """The `notes` on a search of the store that found nothing; a run says each once."""
    note = "" if documents else why_none(state["params"])
    return {"notes": [note]} if note and note not in state.get("notes", []) else {}


def why_none(params: Mapping[str, Any]) -> str:
    """The note on a search that found nothing; empty when only an empty collection can be the reason.

    A search by meaning finds the nearest passages however far they are, so that only a filter can keep
    them all away; a search by words also finds nothing when no passage has one of them.
    """
    filters = params.get("filter")
    if params.get("retrieval") == "sparse":
        place = f" that matches {as_text(filters)}" if filters else ""
        return f"no_word_matched: no passage{place} has a word of the question"
    return f"filter_matched_nothing: no passage matches {as_text(filters)}" if filters else ""
