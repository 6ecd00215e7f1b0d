"""Answer from what is known, with sources; or say honestly that it could not be answered."""

from collections.abc import Mapping
from typing import Any

from shared.clean import counted
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


def finished(text: str, sources: list[Source], params: Mapping[str, Any]) -> dict[str, Any]:
    """The update of a run that is answered: `answer`, `sources`, `disposition`."""
    if params.get("append_sources") == "on" and sources:
        listed = (f"[{number}] {shown(source)}" for number, source in enumerate(sources, 1))
        text = f"{text}\n\n" + "\n".join(listed)
    return {"answer": text, "sources": sources, "disposition": "answered"}


def shown(source: Source) -> str:
    """`handbook.pdf (page 13)`: of an address all, of a path the last part."""
    place = source["source"]
    name = place if "://" in place else place.rsplit("/", 1)[-1]
    return name if source["page"] is None else f"{name} (page {source['page']})"


def _answer(state: RagState, documents: list[Document], resources: Resources) -> dict[str, Any]:
    generated = resources.answer_generator.answer(state["question"], documents)
    if not generated.text:
        return {
            "disposition": "gave_up",
            "reason": generated.why_not or "the documents do not answer the question",
        }
    sources = [source_of(documents[position]) for position in generated.cited]
    return finished(generated.text, sources, state["params"])


def generate(state: RagState, resources: Resources) -> dict[str, Any]:
    """From the retrieved documents as they are. Writes `answer`, `sources`, `disposition` or `reason`."""
    return _answer(state, state["documents"], resources)


def generate_from_knowledge(state: CragState, resources: Resources) -> dict[str, Any]:
    """From the kept documents, then the web's. Writes `answer`, `sources`, `disposition` or `reason`."""
    return _answer(state, [*state.get("knowledge", []), *state.get("web_documents", [])], resources)


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
        found = f"no part of the {counted(retrieved, 'retrieved document')} was relevant"
    else:
        found = f"none of the {retrieved} retrieved documents was relevant"
        if retrieved == 1:
            found = "the only retrieved document was not relevant"
    web = {
        "ok": "",
        "empty": " and the web search found nothing",
        "failed": f" and the web search failed ({state.get('web_error', 'unknown')})",
    }.get(state.get("web_status", ""))
    if web is None:
        web = " and web search is off" if state["params"].get("web_search") == "off" else ""
    return found + web
