"""The vector store through qdrant-client: the same code for a Qdrant server and for the local store."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any, Protocol

import httpx
from qdrant_client import QdrantClient
from qdrant_client import models as q
from qdrant_client.common.client_exceptions import ResourceExhaustedResponse
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from shared.errors import CraglineError, DimensionMismatch, NotFound, PermanentError, TransientError
from shared.plan import Retrieval
from shared.settings import Settings
from workers.models.roles import Document
from workers.stores.bm25 import question_vector
from workers.stores.chunks import Chunk
from workers.stores.conditions import payload_filter
from workers.stores.fusion import fuse
from workers.stores.points import CHANGING, changing, document_of, payload_of, sparse_of, words_of

WORDS = "bm25"  # name of the sparse vector; the dense one has none
TIMEOUT = 30  # seconds for one request to a server
_BATCH = 64  # points in one request; the local store also lets searches in between
_IDS = 1000  # ids in one request
_DEPTH = 50  # passages of each ranking that are fused
_TIES = 16  # more than wanted is asked for, so that of equals the same are kept each time
_MOST_TIES = 1024  # beyond so many equals it is no matter which are kept

_log = logging.getLogger(__name__)


class SearchableStore(Protocol):
    """What reading needs; also offered to other processes by the owner of the local store.

    Every method may raise TransientError (`store_unreachable`) and PermanentError.
    """

    def search(
        self,
        name: str,
        vector: Sequence[float],
        k: int,
        *,
        text: str = "",
        mode: Retrieval = "dense",
        filters: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Document]:
        """At most `k` passages that match `filters`, best first.

        `dense` compares `vector`, and scores by cosine (-1..1). `sparse` compares the words of `text`, and
        scores by BM25 (above 0, no upper end); passages that share no word are not found. `hybrid` fuses
        both by reciprocal rank, and scores 0..1, with 1 for what is first in both. What a mode does not
        compare may be empty. Raises NotFound, DimensionMismatch, and CraglineError for a collection
        without words.
        """
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
        self._worded: set[str] = set()  # collections that have words; forgotten at an error
        self._completed: set[str] = set()  # collections none of whose points lacks its words

    def ensure_collection(self, name: str, dimension: int) -> None:
        """Make the collection if it is absent. Raises DimensionMismatch when it has another dimension."""
        if self.dimension_of(name) is None:
            with self._calling(name):
                try:
                    vectors = q.VectorParams(size=dimension, distance=q.Distance.COSINE)
                    words = {WORDS: q.SparseVectorParams(modifier=q.Modifier.IDF)}
                    self._client.create_collection(name, vectors_config=vectors, sparse_vectors_config=words)
                except (UnexpectedResponse, ValueError):
                    if not self._client.collection_exists(name):  # else another worker was faster
                        raise
        self._check(name, dimension)
        self._complete_words(name)

    def _complete_words(self, name: str) -> None:
        """Points of earlier versions get their words; made from the payload, nothing is embedded."""
        if name in self._completed or not self._make_room_for_words(name):
            return
        lacking = q.Filter(must_not=[q.HasVectorCondition(has_vector=WORDS)])
        offset: Any = None
        while True:
            with self._calling(name):
                points, offset = self._client.scroll(
                    name, scroll_filter=lacking, limit=_BATCH, offset=offset, with_payload=["title", "text"]
                )
                added = [
                    q.PointVectors(id=point.id, vector={WORDS: words})
                    for point in points
                    if (words := words_of(point.payload or {}))
                ]
                if added:
                    self._client.update_vectors(name, added, wait=True)
            if offset is None:
                break
        self._completed.add(name)

    def _make_room_for_words(self, name: str) -> bool:
        """Whether the collection can hold words; one made by an earlier version is told to."""
        if self._has_words(name):
            return True
        with self._calling(name):
            config = q.SparseVectorNameConfig(sparse=q.SparseVectorConfig(modifier=q.Modifier.IDF))
            try:
                self._client.create_vector_name(name, WORDS, config, wait=True)
            except UnexpectedResponse as error:
                if error.status_code not in (400, 404, 405):
                    raise
                # a server too old for it: ingest goes on without, and a search for words says so
                _log.warning("the Qdrant server cannot add words to the collection %s", name)
                return False
        return self._has_words(name)

    def _has_words(self, name: str) -> bool:
        if name not in self._worded:
            with self._calling(name):
                params = self._client.get_collection(name).config.params
            if WORDS not in (params.sparse_vectors or {}):
                return False
            self._worded.add(name)
        return True

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
        worded = bool(chunks) and self._has_words(name)
        points = []
        for chunk, vector in zip(chunks, vectors, strict=True):
            payload = payload_of(chunk, now)
            words = words_of(payload) if worded else None
            named: dict[str, Any] = {"": list(vector)} | ({WORDS: words} if words else {})
            points.append(q.PointStruct(id=chunk.id, vector=named, payload=payload))
        for start in range(0, len(points), _BATCH):
            with self._calling(name):
                self._client.upsert(name, points=points[start : start + _BATCH], wait=True)

    def refresh(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Bring what is kept beside the vectors of stored chunks up to date: their place, their fields."""
        for start in range(0, len(chunks), _BATCH):
            part = {chunk.id: changing(chunk) for chunk in chunks[start : start + _BATCH]}
            with self._calling(name):
                points = self._client.retrieve(name, ids=list(part), with_payload=[*CHANGING])
                stored = {str(point.id): point.payload or {} for point in points}
                operations: list[Any] = [
                    q.SetPayloadOperation(set_payload=q.SetPayload(payload=payload, points=[point]))
                    for point, payload in part.items()
                    if any(stored.get(point, {}).get(key) != value for key, value in payload.items())
                ]
                if operations:
                    self._client.batch_update_points(name, operations, wait=True)

    def drop(self, name: str) -> None:
        """Remove a collection with all its points; an absent one is no error."""
        with self._calling(name):
            self._dimensions.pop(name, None)
            self._worded.discard(name)
            self._completed.discard(name)
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

    def search(
        self,
        name: str,
        vector: Sequence[float],
        k: int,
        *,
        text: str = "",
        mode: Retrieval = "dense",
        filters: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Document]:
        if mode != "sparse":
            self._check(name, len(vector))
        if mode != "dense":
            self._check_words(name, mode)
        wanted = payload_filter(filters or {})
        words = sparse_of(question_vector(text)) if mode != "dense" else None
        with self._calling(name):
            if mode == "dense":
                return self._ranked(name, k, wanted, list(vector), payload=True)
            if mode == "sparse":
                return self._ranked(name, k, wanted, words, payload=True)
            deep = max(_DEPTH, k)
            both = [self._ranked(name, deep, wanted, one) for one in (list(vector), words)]
            scores = dict(fuse([[point["id"] for point in one] for one in both if one])[:k])
            points = self._client.retrieve(name, ids=list(scores), with_payload=True) if scores else []
        documents = {str(point.id): document_of(point, scores[str(point.id)]) for point in points}
        # in the order of the scores; one may have been deleted since
        return [documents[one] for one in scores if one in documents]

    def _ranked(
        self,
        name: str,
        limit: int,
        wanted: q.Filter | None,
        query: list[float] | q.SparseVector | None,
        payload: bool = False,
    ) -> list[Document]:
        """The points nearest to `query`, best first; none for a question without words.

        Of points that are equally near, those with the lower id come first, and so the same ones always:
        Qdrant's own order is that of its storage, which a restart may change.
        """
        if query is None:
            return []
        using = WORDS if isinstance(query, q.SparseVector) else None
        more = _TIES
        while True:
            found = self._client.query_points(
                name, query=query, using=using, query_filter=wanted, limit=limit + more, with_payload=payload
            ).points
            # rounded: the last bits of a product depend on where in the matrix a vector stands
            ranked = sorted(found, key=lambda point: (-round(point.score, 6), str(point.id)))
            all_seen = len(found) < limit + more or more >= _MOST_TIES
            if all_seen or round(ranked[limit - 1].score, 6) > round(ranked[-1].score, 6):
                break
            more *= 8  # the equals go on beyond what was asked for
        return [document_of(point, point.score) for point in ranked[:limit]]

    def _check_words(self, name: str, mode: str) -> None:
        if self.dimension_of(name) is None:
            raise absent(name)
        if not self._has_words(name):
            raise CraglineError(
                f"The collection {name!r} was made by an earlier version and has no words to search, which "
                f"retrieval={mode} needs. Ingest its files again with `cragline ingest PATH --collection "
                f"{name}`: that adds them without embedding anything anew. Or use --set retrieval=dense."
            )

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
                self._forget(name)  # it may have been made anew in another shape
                raise _translated(error, name) from None  # the cause may quote texts or headers
            except ValueError as error:
                if "not found" in str(error):  # how the local store says it
                    self._forget(name)
                    raise absent(name) from None
                raise

    def _forget(self, name: str) -> None:
        self._dimensions.pop(name, None)
        self._worded.discard(name)
        self._completed.discard(name)


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


def new_lock() -> AbstractContextManager[Any]:
    """The one lock of a local store: its client is not safe for threads."""
    return threading.RLock()
