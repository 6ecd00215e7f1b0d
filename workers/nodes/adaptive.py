"""The nodes that only the adaptive pipeline has: routing, extraction, feedback, falling over, apology."""

from typing import Any

from shared.clean import counted, one_line
from shared.errors import CallError, PermanentError
from workers.models.roles import Document
from workers.nodes.draft import tries, what_was_tried
from workers.nodes.resources import Resources
from workers.nodes.retrieve import noted_if_none
from workers.nodes.state import AdaptiveState, Extract, GradeTask

# The modes by their one name each. A published version of this graph calls the store `vectorstore` where
# it is set and `vectorsearch` where it is compared, so that it never falls over to the web.
VECTORSTORE, WEBSEARCH, DIRECT = "vectorstore", "websearch", "direct"


def route(state: AdaptiveState, resources: Resources) -> dict[str, Any]:
    """Writes `mode`: where the answer is looked for first."""
    web = state["params"]["web_search"] == "on"
    return {"mode": resources.router.route(state["question"], state["params"]["description"], web=web)}


def rewrite_for_mode(state: AdaptiveState, resources: Resources) -> dict[str, Any]:
    """Writes `query`, worded for the store or the web, with what was learnt from earlier tries."""
    query = resources.query_rewriter.rewrite(
        state["question"],
        target=state["mode"],
        description=state["params"]["description"] if state["mode"] == VECTORSTORE else "",
        feedback=state.get("query_feedback", []),
    )
    return {"query": query}


def search_store(state: AdaptiveState, resources: Resources) -> dict[str, Any]:
    """Writes `documents` and counts `retrievals`."""
    documents = resources.retriever.retrieve(state["query"], state["params"]["k"])
    update: dict[str, Any] = {"documents": documents, "retrievals": state.get("retrievals", 0) + 1}
    return update | noted_if_none(state, documents)


def search_web(state: AdaptiveState, resources: Resources) -> dict[str, Any]:
    """Writes `documents` and `web_status`, and counts `retrievals`."""
    if resources.web_search is None:
        raise PermanentError("this worker has no Tavily key", code="no_key", where="tavily")
    documents = resources.web_search.search(state["query"], state["params"]["web_k"])
    return {
        "documents": documents,
        "web_status": "ok" if documents else "empty",
        "retrievals": state.get("retrievals", 0) + 1,
    }


def search_web_failed(state: AdaptiveState, error: CallError) -> dict[str, Any]:
    """What stands in for a search that has failed for good: a try that found nothing."""
    return {
        "documents": [],
        "web_status": "failed",
        "retrievals": state.get("retrievals", 0) + 1,
        "notes": [f"web_search_failed: {error.code}: {error}"],
    }


def unextracted(state: AdaptiveState) -> list[Document]:
    """The relevant documents that nothing was taken from yet: once is enough, the question stays the same."""
    known = {extract["document_id"] for extract in state.get("extracts", [])}
    return [document for document in state["knowledge"] if document["id"] not in known]


def extract_knowledge(task: GradeTask, resources: Resources) -> dict[str, Any]:
    """Writes one `extracts` entry. A passage that does not occur in the document is dropped, and that is said."""
    document = task["document"]
    passages = resources.knowledge_extractor.extract(task["question"], document)
    verbatim = [passage for passage in passages if occurs_in(passage, document["text"])]
    extract = Extract(document_id=document["id"], passages=verbatim)
    update: dict[str, Any] = {"extracts": [extract]}
    if dropped := len(passages) - len(verbatim):
        update["notes"] = [f"extract_not_verbatim: {counted(dropped, 'passage')} not in {document['source']}"]
    return update


def occurs_in(passage: str, text: str) -> bool:
    """Whether `passage` stands in `text`, white space aside. An empty passage does not."""
    wanted = one_line(passage)
    return bool(wanted) and wanted in one_line(text)


def assemble(state: AdaptiveState, _resources: Resources) -> dict[str, Any]:
    """Writes `knowledge`: each document reduced to what was taken from it; one with nothing is dropped."""
    taken = {extract["document_id"]: extract["passages"] for extract in state.get("extracts", [])}
    knowledge: list[Document] = [
        {**document, "text": "\n".join(taken[document["id"]])}
        for document in state["knowledge"]
        if taken.get(document["id"])
    ]
    update: dict[str, Any] = {"knowledge": knowledge}
    if not knowledge:
        update["tried"] = [
            f'searched for "{one_line(state["query"], 200)}": nothing of it bears on the question'
        ]
    return update


def feedback_on_query(state: AdaptiveState, resources: Resources) -> dict[str, Any]:
    """Writes `query_feedback`: what the next query should do better."""
    words = resources.feedback_writer.on_query(state["question"], state["query"], state["mode"])
    return {"query_feedback": [words]}


def feedback_on_answer(state: AdaptiveState, resources: Resources) -> dict[str, Any]:
    """Writes `feedback`: what the next answer should do better."""
    words = resources.feedback_writer.on_answer(state["question"], state["draft"], state["problem"])
    return {"feedback": [words]}


def switch_to_web(_state: AdaptiveState, _resources: Resources) -> dict[str, Any]:
    """The store has had its tries: the web gets as many. Writes `mode` and sets `retrievals` back."""
    return {
        "mode": WEBSEARCH,
        "retrievals": 0,
        "notes": ["fell_over_to_web: the store had nothing, so the web was searched"],
    }


def apologise(state: AdaptiveState, resources: Resources) -> dict[str, Any]:
    """Writes `disposition`, and a `reason`: an apology in the question's language, and what was tried,
    unless the apology says it word for word."""
    tried = tries(state)
    apology = resources.apology_writer.apologise(state["question"], tried)
    said = tried and all(phrase in apology for phrase in tried)
    return {"disposition": "gave_up", "reason": apology if said else f"{apology} ({what_was_tried(state)})"}
