"""Decompose a document into strips, score each, keep the relevant ones, and recompose.

Section 4.4 of the CRAG paper (arXiv:2401.15884): strips of a few sentences, filtered by the evaluator,
put together again in their order.
"""

from itertools import pairwise
from typing import Any

from workers.models.roles import Document
from workers.models.sentences import sentences
from workers.nodes.resources import Resources
from workers.nodes.state import CragState, GradeTask, Strip

STRIP_SENTENCES = 2


def decompose(text: str, count: int = STRIP_SENTENCES) -> list[str]:
    """`text` in strips of at most `count` sentences, each a verbatim part of it.

    Sentences on different lines are not put together: a heading or a list item is a strip of its own, so
    that it is not taken for the beginning of the sentence below it.
    """
    starts: list[int] = []
    at = held = 0
    for sentence in sentences(text, min_letters=1):
        start = text.index(sentence, at)
        if not starts or held == count or "\n" in text[at:start]:
            starts.append(start)
            held = 0
        held += 1
        at = start + len(sentence)
    # what is too short for a sentence of its own goes with what stands before it
    bounds = [0, *starts[1:], len(text)]
    strips = [text[start:end].strip() for start, end in pairwise(bounds)]
    return [strip for strip in strips if strip]


def refine_document(task: GradeTask, resources: Resources) -> dict[str, Any]:
    """Writes the scored `strips` of one document."""
    document = task["document"]
    texts = decompose(document["text"])
    scores = resources.relevance_grader.score(task["question"], texts)
    threshold = task["params"]["strip_at"]
    return {
        "strips": [
            Strip(document_id=document["id"], text=text, score=score, kept=score >= threshold)
            for text, score in zip(texts, scores, strict=True)
        ]
    }


def recompose(state: CragState, _resources: Resources) -> dict[str, Any]:
    """Writes `knowledge`: each document reduced to its kept strips; one with none left is dropped."""
    refined: list[Document] = []
    for document in state["knowledge"]:
        kept = [
            s["text"] for s in state.get("strips", []) if s["document_id"] == document["id"] and s["kept"]
        ]
        if kept:
            refined.append({**document, "text": "\n".join(kept)})
    return {"knowledge": refined}
