"""The vector store through qdrant-client: the same code for a Qdrant server and for the local store."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
from qdrant_client import QdrantClient
from qdrant_client import models as q
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from shared.errors import CraglineError, DimensionMismatch, NotFound, PermanentError, TransientError
from shared.settings import Settings
from workers.models.roles import Document
from workers.stores.chunks import Chunk

TIMEOUT = 30  # seconds for one request to a server
_BATCH = 64  # points in one request; the local store also lets searches in between
_IDS = 1000  # ids in one request


class SearchableStore(Protocol):
    """What reading needs; also offered to other processes by the owner of the local store.

    Every method may raise TransientError (`store_unreachable`) and PermanentError.
    """

    def search(self, name: str, vector: Sequence[float], k: int) -> list[Document]:
        """At most `k` passages, best first, scored by cosine (-1..1). Raises NotFound, DimensionMismatch."""
        ...

    def dimension_of(self, name: str) -> int | None: ...

    def count(self, name: str) -> int: ...

    def existing_ids(self, name: str, ids: Sequence[str]) -> set[str]: ...

    def close(self) -> None: ...


class VectorStore:
    """A Qdrant client with our errors. `lock` is held around every call, for a client without its own."""

    def __init__(
        self,
        client: QdrantClient,
        *,
        lock: AbstractContextManager[Any] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._lock = lock or nullcontext()
        self._on_close = on_close
        self._closed = False
        self._dimensions: dict[str, int] = {}  # of collections that were seen; forgotten at an error

    def ensure_collection(self, name: str, dimension: int) -> None:
        """Make the collection if it is absent. Raises DimensionMismatch when it has another dimension."""
        if self.dimension_of(name) is None:
            with self._calling(name):
                try:
                    vectors = q.VectorParams(size=dimension, distance=q.Distance.COSINE)
                    self._client.create_collection(name, vectors_config=vectors)
                except (UnexpectedResponse, ValueError):
                    if not self._client.collection_exists(name):  # else another worker was faster
                        raise
        self._check(name, dimension)

    def dimension_of(self, name: str) -> int | None:
        """The dimension of a collection's vectors, None when there is no such collection."""
        if name in self._dimensions:
            return self._dimensions[name]
        with self._calling(name):
            if not self._client.collection_exists(name):
                return None
            vectors = self._client.get_collection(name).config.params.vectors
        if not isinstance(vectors, q.VectorParams) or vectors.distance != q.Distance.COSINE:
            raise CraglineError(
                f"The collection {name!r} in Qdrant was not made by Cragline (it has no single cosine "
                "vector). Use another collection name."
            )
        self._dimensions[name] = vectors.size
        return vectors.size

    def upsert(self, name: str, chunks: Sequence[Chunk], vectors: Sequence[Sequence[float]]) -> None:
        """Store chunks with their vectors; a chunk whose id is there already is replaced."""
        if len(chunks) != len(vectors):
            raise ValueError(f"{len(chunks)} chunks, but {len(vectors)} vectors")
        for vector in vectors[:1]:
            self._check(name, len(vector))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        points = [
            q.PointStruct(id=chunk.id, vector=list(vector), payload=_payload(chunk, now))
            for chunk, vector in zip(chunks, vectors, strict=True)
        ]
        for start in range(0, len(points), _BATCH):
            with self._calling(name):
                self._client.upsert(name, points=points[start : start + _BATCH], wait=True)

    def renumber(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Give stored chunks another place in their document; text and vectors stay."""
        operations: list[Any] = [
            q.SetPayloadOperation(set_payload=q.SetPayload(payload=_place(chunk), points=[chunk.id]))
            for chunk in chunks
        ]
        for start in range(0, len(operations), _BATCH):
            with self._calling(name):
                self._client.batch_update_points(name, operations[start : start + _BATCH], wait=True)

    def drop(self, name: str) -> None:
        """Remove a collection with all its points; an absent one is no error."""
        with self._calling(name):
            self._dimensions.pop(name, None)
            if self._client.collection_exists(name):
                self._client.delete_collection(name)

    def delete(self, name: str, ids: Sequence[str]) -> None:
        """Remove points; ids that are not there are no error, nor is an absent collection."""
        if self.dimension_of(name) is None:
            return
        for start in range(0, len(ids), _IDS):
            with self._calling(name):
                points = q.PointIdsList(points=list(ids[start : start + _IDS]))
                self._client.delete(name, points_selector=points, wait=True)

    def search(self, name: str, vector: Sequence[float], k: int) -> list[Document]:
        self._check(name, len(vector))
        with self._calling(name):
            found = self._client.query_points(name, query=list(vector), limit=k, with_payload=True).points
        return [_document(point) for point in found]

    def count(self, name: str) -> int:
        """Points in the collection. Raises NotFound."""
        with self._calling(name):
            return self._client.count(name, exact=True).count

    def existing_ids(self, name: str, ids: Sequence[str]) -> set[str]:
        """Those of `ids` that are stored. Raises NotFound."""
        known: set[str] = set()
        for start in range(0, len(ids), _IDS):
            with self._calling(name):
                part = list(ids[start : start + _IDS])
                points = self._client.retrieve(name, ids=part, with_payload=False, with_vectors=False)
            known.update(str(point.id) for point in points)
        return known

    def close(self) -> None:
        """Waits for a call that is under way; later calls raise TransientError. Twice is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._client.close()
        finally:
            if self._on_close:
                self._on_close()

    def _check(self, name: str, dimension: int) -> None:
        stored = self.dimension_of(name)
        if stored is None:
            raise absent(name)
        if stored != dimension:
            raise DimensionMismatch(
                f"The collection {name!r} holds vectors of {stored} numbers, but the embedding model in "
                f"use makes {dimension}. Ingest into another collection (--collection NAME), or set "
                "CRAGLINE_EMBEDDINGS (and CRAGLINE_EMBEDDING_MODEL) to the model that filled this one."
            )

    @contextmanager
    def _calling(self, name: str) -> Iterator[None]:
        """One call of the client: locked, and with its errors translated into ours."""
        with self._lock:
            if self._closed:
                raise unreachable("the store was closed")
            try:
                yield
            except (UnexpectedResponse, ResourceExhaustedResponse, ResponseHandlingException) as error:
                self._dimensions.pop(name, None)  # it may have been made anew with another one
                raise _translated(error, name) from None  # the cause may quote texts or headers
            except ValueError as error:
                if "not found" in str(error):  # how the local store says it
                    self._dimensions.pop(name, None)
                    raise absent(name) from None
                raise


def server_store(settings: Settings) -> VectorStore:
    """A store on the server at CRAGLINE_QDRANT_URL. Opens no connection yet."""
    key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
    try:
        client = QdrantClient(
            url=settings.qdrant_url,
            api_key=key,
            timeout=TIMEOUT,
            prefer_grpc=False,
            check_compatibility=False,  # would call the server here, where it may not be up yet
        )
    except Exception:  # noqa: BLE001 - whatever it says could quote a password in the URL
        raise CraglineError(
            "CRAGLINE_QDRANT_URL cannot be used; it should look like http://host:6333."
        ) from None
    return VectorStore(client)


def server_name(settings: Settings) -> str:
    """Host and port of the server in use, without what a URL may hold besides; empty for the local store."""
    return urlsplit(settings.qdrant_url).netloc.rpartition("@")[2] if settings.qdrant_url else ""


def absent(name: str) -> NotFound:
    return NotFound(
        f"There is no collection {name!r}. Make it with: cragline ingest PATH --collection {name}"
    )


def unreachable(reason: str, retry_after: float | None = None) -> TransientError:
    return TransientError(
        f"The vector store cannot be reached: {reason}.",
        code="store_unreachable",
        where="qdrant",
        retry_after=retry_after,
    )


def _translated(
    error: UnexpectedResponse | ResourceExhaustedResponse | ResponseHandlingException, name: str
) -> Exception:
    if isinstance(error, ResourceExhaustedResponse):
        return unreachable("it is overloaded (429)", retry_after=float(error.retry_after_s))
    if isinstance(error, ResponseHandlingException):
        source = error.source
        if isinstance(source, httpx.TimeoutException):
            return unreachable(f"no answer within {TIMEOUT} s")
        if isinstance(source, httpx.TransportError) and not isinstance(source, httpx.UnsupportedProtocol):
            return unreachable(f"{type(source).__name__}")
        return PermanentError(
            "What answers at CRAGLINE_QDRANT_URL is not a Qdrant server this version can talk to.",
            code="store_refused",
            where="qdrant",
        )
    status = error.status_code or 0
    if status in (401, 403):
        return PermanentError(
            f"Qdrant refused the key ({status}); check CRAGLINE_QDRANT_API_KEY.",
            code="store_auth",
            where="qdrant",
        )
    if status == 404:
        return absent(name)
    if status in (408, 429) or status >= 500:
        return unreachable(f"it answered {status}")
    return PermanentError(f"Qdrant refused the request ({status}).", code="store_refused", where="qdrant")


def _payload(chunk: Chunk, ingested_at: str) -> dict[str, Any]:
    return {
        "text": chunk.text,
        "page": chunk.page,
        "content_hash": chunk.content_hash,
        "ingested_at": ingested_at,
        **_place(chunk),
    }


def _place(chunk: Chunk) -> dict[str, Any]:
    """What may change of a chunk whose text stays: where it stands, and what is said of its document."""
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
        **{name: value for name, value in known.items() if value is not None},
    }


def _document(point: q.ScoredPoint) -> Document:
    payload = point.payload or {}
    page = payload.get("page")
    return Document(
        id=str(point.id),
        text=str(payload.get("text", "")),
        title=str(payload.get("title", "")),
        source=str(payload.get("source", "")),
        page=page if isinstance(page, int) else None,
        # float32 arithmetic differs in the seventh digit from call to call; a history should not
        score=round(float(point.score), 4),
        origin="store",
    )


def new_lock() -> AbstractContextManager[Any]:
    """The one lock of a local store: its client is not safe for threads."""
    return threading.RLock()
