"""The tables of what was ingested: collections, their other names, the work on them, and their documents."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Integer, text
from sqlalchemy.orm import Mapped, mapped_column

from shared.statuses import FileStatus, WorkKind
from shared.table_base import Base, id_column, now_column, one_of


class Collection(Base):
    """What is known of a collection outside the vector store: who embedded it, and how wide."""

    __tablename__ = "collections"
    __table_args__ = (CheckConstraint("dimension > 0", name="dimension"),)
    name: Mapped[str] = mapped_column(primary_key=True)
    embedding_model: Mapped[str]  # "<provider>/<model>"
    dimension: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = now_column()
    description: Mapped[str | None]  # what is in it, in a person's words; prompts may use it
    # Another number after each change of its documents, and never the same for two collections, so that
    # one that was deleted and filled anew is not taken for the old one.
    version: Mapped[int] = mapped_column(server_default=text("nextval('collection_versions')"))


class CollectionAlias(Base):
    """Another name for a collection. Resolved when a batch is submitted, so a running batch keeps its own."""

    __tablename__ = "collection_aliases"
    name: Mapped[str] = mapped_column(primary_key=True)  # never the name of a collection
    target: Mapped[str] = mapped_column(ForeignKey("collections.name"))  # a target cannot be deleted
    set_at: Mapped[datetime] = now_column()


class IngestFile(Base):
    """A file, site or repository to ingest, or another piece of work: the unit of the task `ingest.file`."""

    __tablename__ = "ingest_files"
    __table_args__ = (
        one_of("status", FileStatus),
        one_of("kind", WorkKind),
        Index(None, "ingest_id"),
        Index("ix_ingest_files_open", "id", postgresql_where=text("status IN ('pending', 'running')")),
    )
    id: Mapped[int] = id_column()
    ingest_id: Mapped[str]  # one call of `cragline ingest`: a UUID
    collection: Mapped[str]
    kind: Mapped[str] = mapped_column(server_default=WorkKind.FILE)
    path: Mapped[str]  # absolute; a URL; `git+https://...`; empty where the whole collection is meant
    options: Mapped[dict[str, Any] | None]  # of a site or repository: depth, max_pages, include, prune, ...
    status: Mapped[str] = mapped_column(server_default=FileStatus.PENDING)
    documents: Mapped[int] = mapped_column(Integer, server_default="0")
    chunks_added: Mapped[int] = mapped_column(Integer, server_default="0")
    chunks_unchanged: Mapped[int] = mapped_column(Integer, server_default="0")
    chunks_removed: Mapped[int] = mapped_column(Integer, server_default="0")
    documents_removed: Mapped[int] = mapped_column(Integer, server_default="0")
    error: Mapped[str | None]
    notes: Mapped[list[str]] = mapped_column(server_default="{}")
    worker: Mapped[str | None]
    created_at: Mapped[datetime] = now_column()
    started_at: Mapped[datetime | None]
    touched_at: Mapped[datetime | None]  # heartbeat while running
    ended_at: Mapped[datetime | None]


class IngestedDocument(Base):
    """A document that is in a collection, with the hash that tells whether it changed."""

    __tablename__ = "documents"
    __table_args__ = (
        Index("uq_documents_collection_source", "collection", "source", unique=True),
        Index(None, "collection", "path"),
        Index(None, "collection", "root"),
    )
    id: Mapped[int] = id_column()
    collection: Mapped[str]
    source: Mapped[str]  # its identity: a path, `path#id` of a record, a URL, `repository:path`
    path: Mapped[str]  # the file or page it came from
    root: Mapped[str] = mapped_column(server_default="")  # what was ingested: the file, site or repository
    title: Mapped[str]
    content_hash: Mapped[str]  # SHA-256 over text, title, pages and the chunking
    chunk_ids: Mapped[list[str]]  # point ids in the vector store
    embedding_model: Mapped[str]
    ingested_at: Mapped[datetime] = now_column()
