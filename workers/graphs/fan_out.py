"""One Send a document: how the pipelines hand documents to a node that looks at a single one."""

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.types import Send

from workers.models.roles import Document
from workers.nodes.state import GradeTask


def each_document(node: str, documents: Sequence[Document], state: Mapping[str, Any]) -> list[Send]:
    return [
        Send(node, GradeTask(question=state["question"], document=document, params=state["params"]))
        for document in documents
    ]
