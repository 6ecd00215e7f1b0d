"""One Send a document: how the pipelines hand documents to a node that looks at a single one."""

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.types import Send

from workers.models.roles import Document
from workers.nodes.state import GradeTask


def each_document(
    node: str, documents: Sequence[Document], state: Mapping[str, Any], **params: Any
) -> list[Send]:
    """`params` are added to the plan's numbers that the node sees."""
    numbers = {**state["params"], **params}
    return [
        Send(node, GradeTask(question=state["question"], document=document, params=numbers))
        for document in documents
    ]
