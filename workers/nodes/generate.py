"""Answer from what is known, with sources; or say honestly that it could not be answered."""

from typing import Any

from shared.filters import as_text
from workers.models.roles import Document
from workers.nodes.resources import Resources
from workers.nodes.state import CragState, RagState, Source


def source_of(document: Document) -> Source:
    return Source(
        title=document["title"],
        source=document["source"],
        page=document["page"],
        origin=document["origin"],
        document_id=document["id"],
    )


def _answer(question: str, documents: list[Document], resources: Resources) -> dict[str, Any]:
    generated = resources.answer_generator.answer(question, documents)
    if not generated.text:
        return {
            "disposition": "gave_up",
            "reason": generated.why_not or "the documents do not answer the question",
        }
    return {
        "answer": generated.text,
        "sources": [source_of(documents[position]) for position in generated.cited],
        "disposition": "answered",
    }


def generate(state: RagState, resources: Resources) -> dict[str, Any]:
    """From the retrieved documents as they are. Writes `answer`, `sources`, `disposition` or `reason`."""
    return _answer(state["question"], state["documents"], resources)


def generate_from_knowledge(state: CragState, resources: Resources) -> dict[str, Any]:
    """From the kept documents, then the web's. Writes `answer`, `sources`, `disposition` or `reason`."""
    documents = [*state.get("knowledge", []), *state.get("web_documents", [])]
    return _answer(state["question"], documents, resources)


def give_up(state: RagState, _resources: Resources) -> dict[str, Any]:
    """Ends a run that has nothing to answer from. Writes `disposition` and the `reason`."""
    return {"disposition": "gave_up", "reason": why_nothing(state)}  # type: ignore[arg-type]


def why_nothing(state: CragState) -> str:
    """One sentence for the person who asked: what was looked at, and what came of the web."""
    retrieved = len(state.get("documents", []))
    if not retrieved:
        found = "no document was retrieved"
        if filters := state["params"].get("filter"):
            found = f"no document that matches {as_text(filters)} was retrieved"
    elif not state.get("knowledge") and state.get("strips"):
        found = f"no part of the {retrieved} retrieved documents was relevant"
    else:
        found = f"none of the {retrieved} retrieved documents was relevant"
    web = {
        "ok": "",
        "empty": " and the web search found nothing",
        "failed": " and the web search failed",
    }.get(state.get("web_status", ""))
    if web is None:
        web = " and web search is off" if state["params"].get("web_search") == "off" else ""
    return found + web
