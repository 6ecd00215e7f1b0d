"""Grade one document: is it relevant to the question?"""

from typing import Any

from workers.nodes.resources import Resources
from workers.nodes.state import GradeRecord, GradeTask


def grade_document(task: GradeTask, resources: Resources) -> dict[str, Any]:
    """Writes one entry of `grades`. A verdict that is neither yes nor no is kept, labelled `unparsed`."""
    document = task["document"]
    verdict = resources.relevance_grader.grade(task["question"], document)
    record = GradeRecord(
        document_id=document["id"],
        label=verdict.label,
        score=verdict.score,
        model=verdict.model,
        prompt_version=verdict.prompt_version,
        detail=verdict.detail,
        title=document["title"],
        source=document["source"],
        page=document["page"],
        retrieval_score=document["score"],
    )
    update: dict[str, Any] = {"grades": [record]}
    if verdict.label == "unparsed":
        update["notes"] = [f"grade_unparsed: the verdict on {document['source']} was neither yes nor no"]
    return update
