"""A chunk as a point of the store, and a point as the document that a node sees."""

from collections.abc import Mapping
from typing import Any

from qdrant_client import models as q

from workers.models.roles import Document
from workers.stores.bm25 import passage_vector
from workers.stores.chunks import Chunk

# What may change while a chunk and its vectors stay: where it stands, and what is said of its document.
CHANGING = ("title", "source", "ordinal", "path", "fields", "lines", "language", "description", "commit")


def changing(chunk: Chunk) -> dict[str, Any]:
    in_repository = chunk.commit is not None and chunk.lines is not None
    known = {
        "lines": chunk.lines,
        "language": chunk.language,
        "description": chunk.description,
        "commit": chunk.commit,
    }
    return {
        "title": f"{chunk.title}:{chunk.lines}" if in_repository else chunk.title,
        "source": chunk.cited or chunk.source,
        "ordinal": chunk.ordinal,
        "path": chunk.path,
        "fields": dict(chunk.fields),
        **{name: value for name, value in known.items() if value is not None},
    }


def payload_of(chunk: Chunk, ingested_at: str) -> dict[str, Any]:
    return {
        "text": chunk.text,
        "page": chunk.page,
        "content_hash": chunk.content_hash,
        "ingested_at": ingested_at,
        **changing(chunk),
    }


def words_of(payload: Mapping[str, Any]) -> q.SparseVector | None:
    return sparse_of(passage_vector(str(payload.get("title", "")), str(payload.get("text", ""))))


def sparse_of(vector: Mapping[int, float]) -> q.SparseVector | None:
    """None for an empty one, which is stored as no vector at all."""
    return q.SparseVector(indices=list(vector), values=list(vector.values())) if vector else None


def document_of(point: q.ScoredPoint | q.Record, score: float) -> Document:
    payload = point.payload or {}
    page = payload.get("page")
    return Document(
        id=str(point.id),
        text=str(payload.get("text", "")),
        title=str(payload.get("title", "")),
        source=str(payload.get("source", "")),
        page=page if isinstance(page, int) else None,
        # float32 arithmetic differs in the seventh digit from call to call; a history should not
        score=round(float(score), 4),
        origin="store",
    )
