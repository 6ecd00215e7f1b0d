"""Bring the store in line with the documents of a file, site or repository, so that a death at any point
leaves nothing astray.

For each document that changed, in this order:
  1. its row lists the old and the new chunk ids, and has no content hash (it is unsettled);
  2. new chunks are embedded and stored, then stale ones are deleted;
  3. its row lists the new ids, and has its content hash.
Steps 1 and 3 give the collection a new version.
So every point in the store is listed in some row at all times, and a second try finishes what the first
began: it finds the unsettled row, embeds only what is missing, and deletes whatever is too much.
No transaction is open while embedding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from sqlalchemy import Engine, delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from shared.db import transaction
from shared.errors import DimensionMismatch
from shared.tables import Collection, IngestedDocument
from workers.models.roles import Embedder
from workers.stores.chunks import Chunk, document_hash, split
from workers.stores.loaders import LoadedDocument
from workers.stores.qdrant import VectorStore

SLICE = 64  # chunks embedded and stored at once
EMBEDDERS = 2  # slices embedded side by side: a single big file shall not wait on one core or one request
_BATCH_DOCUMENTS = SLICE * EMBEDDERS
_BATCH_CHARACTERS = 200_000
Gone = Callable[[list[str]], list[str]]
_UNSETTLED = ""  # content hash of a row whose document is being changed


@dataclass(frozen=True)
class Change:
    """What a step did; added to the counters of the file's row."""

    documents: int = 0
    chunks_added: int = 0
    chunks_unchanged: int = 0
    chunks_removed: int = 0
    documents_removed: int = 0


@dataclass
class _Wanted:
    """A document as it should be."""

    source: str
    parts: list[LoadedDocument]
    content_hash: str
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [chunk.id for chunk in self.chunks]


@dataclass(frozen=True)
class _Known:
    """A document as its row has it."""

    content_hash: str
    chunk_ids: list[str]


@dataclass(frozen=True)
class Sync:
    """The documents of one file, on their way into one collection.

    `report` is called after every step with what it did; it may raise to stop. `patiently` runs a call
    to the embedder or the store, and tries again where that can help.
    """

    engine: Engine
    store: VectorStore
    embedder: Embedder
    collection: str
    chunk_tokens: int
    chunk_overlap: int
    report: Callable[[Change], None]
    patiently: Callable[[Callable[[], Any]], Any]

    def run(self, documents: Iterable[LoadedDocument], root: str, gone: Gone = list) -> None:
        """Bring all documents of `root` (a file, a site, a repository) in line.

        Documents that came from `root` earlier and are not among these are handed to `gone`, which says
        which of them are to be removed; by default all, as with the lines of a file.

        Raises what loading raises (documents before that point are in line then), DimensionMismatch,
        and the errors of the embedder and the store.
        """
        seen: set[str] = set()
        for batch in _batches(self._wanted(documents)):
            if not seen:
                self._ready_collection()
            seen.update(wanted.source for wanted in batch)
            self._bring_in(batch, root)
        self.drop(gone([source for source in self.sources_of(root) if source not in seen]))

    def _wanted(self, documents: Iterable[LoadedDocument]) -> Iterator[_Wanted]:
        for source, group in groupby(documents, key=lambda document: document.source):
            parts = list(group)
            yield _Wanted(source, parts, document_hash(parts, self.chunk_tokens, self.chunk_overlap))

    def _ready_collection(self) -> None:
        """The collection exists, here and in the store, and was filled with this embedding model."""
        check_embedder(self.engine, self.collection, self.embedder)
        self.patiently(partial(self.store.ensure_collection, self.collection, self.embedder.dimension))
        row = {
            "name": self.collection,
            "embedding_model": self.embedder.name,
            "dimension": self.embedder.dimension,
        }
        with transaction(self.engine) as session:
            session.execute(insert(Collection).values(row).on_conflict_do_nothing())
        check_embedder(self.engine, self.collection, self.embedder)  # another worker may have been faster

    def _bring_in(self, batch: list[_Wanted], root: str) -> None:
        known = self._known([wanted.source for wanted in batch])
        changed: list[_Wanted] = []
        unchanged = Change()
        stored = self._stored([one for row in known.values() for one in row.chunk_ids])
        for wanted in batch:
            row = known.get(wanted.source)
            # the store is asked too: it may have been emptied, or another one was set
            if row and row.content_hash == wanted.content_hash and stored.issuperset(row.chunk_ids):
                unchanged = Change(
                    unchanged.documents + 1, 0, unchanged.chunks_unchanged + len(row.chunk_ids)
                )
            else:
                wanted.chunks = list(split(wanted.parts, self.chunk_tokens, self.chunk_overlap))
                changed.append(wanted)
        if changed:
            self._replace(changed, known, root)
        if unchanged.documents:
            self.report(unchanged)

    def _replace(self, changed: list[_Wanted], known: dict[str, _Known], root: str) -> None:
        def listed(wanted: _Wanted) -> list[str]:
            row = known.get(wanted.source)
            return row.chunk_ids if row else []

        self._write([(one, _UNSETTLED, _union(listed(one), one.ids)) for one in changed], root)
        stored = self._stored([chunk.id for one in changed for chunk in one.chunks])
        missing = [chunk for one in changed for chunk in one.chunks if chunk.id not in stored]
        slices = [missing[start : start + SLICE] for start in range(0, len(missing), SLICE)]
        with ThreadPoolExecutor(EMBEDDERS, thread_name_prefix="embed") as pool:
            for start in range(0, len(slices), EMBEDDERS):
                parts = slices[start : start + EMBEDDERS]
                for part, vectors in zip(parts, list(pool.map(self._embed, parts)), strict=True):
                    self.patiently(partial(self.store.upsert, self.collection, part, vectors))
                    self.report(Change(chunks_added=len(part)))
        stayed = [chunk for one in changed for chunk in one.chunks if chunk.id in stored]
        self.patiently(partial(self.store.refresh, self.collection, stayed))
        stale = [one for wanted in changed for one in _without(listed(wanted), wanted.ids)]
        self.patiently(partial(self.store.delete, self.collection, stale))
        self._write([(one, one.content_hash, one.ids) for one in changed], root)
        self.report(Change(len(changed), 0, len(stored), len(stale)))

    def _embed(self, part: Sequence[Chunk]) -> list[list[float]]:
        vectors: list[list[float]] = self.patiently(partial(self.embedder.embed_documents, _texts(part)))
        return vectors

    def drop(self, sources: Sequence[str]) -> None:
        """Remove documents with their chunks."""
        for start in range(0, len(sources), _BATCH_DOCUMENTS):
            part = sources[start : start + _BATCH_DOCUMENTS]
            ids = [one for row in self._known(part).values() for one in row.chunk_ids]
            self.patiently(partial(self.store.delete, self.collection, ids))
            with transaction(self.engine) as session:
                session.execute(
                    delete(IngestedDocument).where(
                        IngestedDocument.collection == self.collection, IngestedDocument.source.in_(part)
                    )
                )
                bump(session, self.collection)
            self.report(Change(documents_removed=len(part), chunks_removed=len(ids)))

    def sources_of(self, root: str) -> list[str]:
        """The documents that an earlier ingest of `root` has brought in."""
        statement = select(IngestedDocument.source).where(
            IngestedDocument.collection == self.collection, IngestedDocument.root == root
        )
        with transaction(self.engine) as session:
            return list(session.scalars(statement.order_by(IngestedDocument.id)))

    def _known(self, sources: Sequence[str]) -> dict[str, _Known]:
        columns = (IngestedDocument.source, IngestedDocument.content_hash, IngestedDocument.chunk_ids)
        statement = select(*columns).where(
            IngestedDocument.collection == self.collection, IngestedDocument.source.in_(sources)
        )
        with transaction(self.engine) as session:
            return {source: _Known(digest, list(ids)) for source, digest, ids in session.execute(statement)}

    def _stored(self, ids: Sequence[str]) -> set[str]:
        if not ids:
            return set()
        known: set[str] = self.patiently(partial(self.store.existing_ids, self.collection, ids))
        return known

    def _write(self, rows: list[tuple[_Wanted, str, list[str]]], root: str) -> None:
        """Insert or replace the rows of documents: (document, content hash, chunk ids)."""
        values = [
            {
                "collection": self.collection,
                "source": wanted.source,
                "path": wanted.parts[0].path,
                "root": root,
                "title": wanted.parts[0].title,
                "content_hash": content_hash,
                "chunk_ids": ids,
                "embedding_model": self.embedder.name,
            }
            for wanted, content_hash, ids in rows
        ]
        statement = insert(IngestedDocument).values(values)
        new = {name: statement.excluded[name] for name in values[0] if name not in ("collection", "source")}
        with transaction(self.engine) as session:
            session.execute(
                statement.on_conflict_do_update(
                    index_elements=["collection", "source"], set_={**new, "ingested_at": func.now()}
                )
            )
            bump(session, self.collection)


def bump(session: Session, collection: str) -> None:
    """A new version of the collection, in the transaction that says what has changed.

    Always after the change in the store: who read the number before searching may have found newer
    documents than it says, never older ones, so what is kept under the last number is up to date.
    """
    session.execute(
        update(Collection)
        .where(Collection.name == collection)
        .values(version=text("nextval('collection_versions')"))
    )


def check_embedder(engine: Engine, collection: str, embedder: Embedder) -> None:
    """Raises DimensionMismatch when the collection is known and was filled with another embedding model.

    Two models of the same dimension do not understand each other either; only this check can tell.
    """
    with transaction(engine) as session:
        row = session.execute(
            select(Collection.embedding_model, Collection.dimension).where(Collection.name == collection)
        ).one_or_none()
    if row is None or tuple(row) == (embedder.name, embedder.dimension):
        return
    raise DimensionMismatch(
        f"The collection {collection!r} was filled with {row.embedding_model} ({row.dimension} numbers a "
        f"vector), but the embedding model in use is {embedder.name} ({embedder.dimension}). Use another "
        "collection (--collection NAME), or set CRAGLINE_EMBEDDINGS (and CRAGLINE_EMBEDDING_MODEL) back "
        "to that model."
    )


def _batches(documents: Iterable[_Wanted]) -> Iterator[list[_Wanted]]:
    """Documents in groups of bounded size, in order."""
    batch: list[_Wanted] = []
    characters = 0
    for wanted in documents:
        batch.append(wanted)
        characters += sum(len(part.text) for part in wanted.parts)
        if len(batch) >= _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _texts(chunks: Sequence[Chunk]) -> list[str]:
    """What is embedded: a passage of Markdown or Word together with the headings it stood under.

    The titles of other documents (of web pages, often) were tried too: they made retrieval worse.
    """
    return [
        f"{one.title}\n{one.text}" if one.path.lower().endswith((".md", ".docx")) else one.text
        for one in chunks
    ]


def _union(first: Sequence[str], second: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*first, *second]))


def _without(ids: Sequence[str], others: Sequence[str]) -> list[str]:
    left_out = set(others)
    return [one for one in ids if one not in left_out]
