"""Decompose a document into strips, score each, keep the relevant ones, and recompose.

Section 4.4 of the CRAG paper (arXiv:2401.15884): strips of a few sentences, filtered by the evaluator,
put together again in their order.
"""

import re
from typing import Any

from workers.models.roles import Document
from workers.nodes.resources import Resources
from workers.nodes.state import CragState, GradeTask, Strip

STRIP_SENTENCES = 2
# after a full stop and white space, or after a CJK full stop; never across a line break
_BOUNDARY = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


def decompose(text: str, sentences: int = STRIP_SENTENCES) -> list[str]:
    """`text` in strips of `sentences` sentences, each a verbatim part of one line of it.

    A heading or list item is a strip of its own, so that it is not taken for the beginning of a sentence.
    """
    strips = []
    for line in text.splitlines():
        ends = [match.start() for match in _BOUNDARY.finditer(line)] + [len(line)]
        starts = [0, *(match.end() for match in _BOUNDARY.finditer(line))]
        for at in range(0, len(starts), sentences):
            strip = line[starts[at] : ends[min(at + sentences, len(ends)) - 1]].strip()
            if strip:
                strips.append(strip)
    return strips


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
