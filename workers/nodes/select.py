"""Which documents are still to be graded, and which of the graded ones are kept.

A document is graded once in a run: the verdict is on question and document, and neither changes when a
rewritten query finds it again.
"""

from collections.abc import Mapping
from typing import Any

from shared.clean import counted, one_line
from shared.filters import as_text
from workers.models.roles import Document
from workers.nodes.resources import Resources
from workers.nodes.state import DraftState


def ungraded(state: DraftState) -> list[Document]:
    """The documents of the last search that have no grade yet."""
    graded = {grade["document_id"] for grade in state.get("grades", [])}
    return [document for document in state["documents"] if document["id"] not in graded]


def select(state: DraftState, _resources: Resources) -> dict[str, Any]:
    """Writes `knowledge`, the relevant documents of the last search, and what was `tried` when there is none."""
    labels = {grade["document_id"]: grade["label"] for grade in state.get("grades", [])}
    documents = state["documents"]
    kept = [document for document in documents if labels.get(document["id"]) == "relevant"]
    update: dict[str, Any] = {"knowledge": kept}
    if not kept:
        found = f"{counted(len(documents), 'document')}, none relevant" if documents else _nothing(state)
        update["tried"] = [f'searched for "{one_line(state["query"], 200)}": {found}']
    return update


def _nothing(state: Mapping[str, Any]) -> str:
    filters = state["params"].get("filter")
    if not filters or state.get("mode") == "websearch":  # the store is filtered, the web is not
        return "nothing found"
    return f"no document that matches {as_text(filters)}"
