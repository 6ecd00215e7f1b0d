"""Ingest as rows: `cragline ingest` writes a row for each file, site and repository, workers take them,
anyone can watch.

A message only wakes a worker. Which worker has a file is decided by `claim`, so that a lost message is
healed by publishing again, and a doubled one finds nothing to do.
"""

import re
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Update, and_, case, func, insert, or_, select, update
from sqlalchemy.sql.elements import ColumnElement

from shared.db import transaction
from shared.errors import NotFound, UsageError
from shared.knowledge import resolve
from shared.queue import RETRIEVAL
from shared.sources import CannotIngest, Options, Work, plan_work
from shared.statuses import FileStatus, WorkKind
from shared.tables import IngestFile

TASK = "ingest.file"
STALE_SECONDS = 60.0  # a running file whose worker was not heard of for so long may be taken by another
_NO_TEXT = "holds no text"  # a file that was read without a fault and gave no document
_COLLECTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ROWS = 1000  # rows in one INSERT


@dataclass(frozen=True)
class Ingest:
    """What `create` made: a row for each piece of work, and what it left out of the folders, by reason."""

    ingest_id: str
    file_ids: list[int]
    skipped: Counter[str] = field(default_factory=Counter)
    collection: str = ""  # the one that is filled: an alias is resolved
    kinds: Counter[str] = field(default_factory=Counter)  # rows of each kind


@dataclass(frozen=True)
class Progress:
    """Counts over the files of one ingest. `failures` and `notes` are (path, text)."""

    files: int
    pending: int
    running: int
    done: int
    failed: int
    documents: int
    chunks_added: int
    chunks_unchanged: int
    chunks_removed: int
    failures: list[tuple[str, str]]
    notes: list[tuple[str, str]]
    documents_removed: int = 0

    @property
    def ended(self) -> bool:
        return self.done + self.failed == self.files

    @property
    def begun(self) -> bool:
        return self.pending < self.files


def check_collection_name(name: str) -> str:
    """`name`, or UsageError: it becomes a folder of the local store and a part of Qdrant's URLs."""
    if not _COLLECTION.fullmatch(name):
        raise UsageError(
            "A collection's name may hold letters, digits, '_', '-' and '.', begins with a letter or digit, "
            "and is at most 100 characters long."
        )
    return name


def create(
    engine: Engine, sources: Sequence[Path | str], collection: str, options: Options | None = None
) -> Ingest:
    """Write the rows of one ingest. An alias stands for the collection it points to now.

    Raises what `plan_work` and `check_collection_name` raise, and CannotIngest when there is nothing to
    ingest; then nothing was written.
    """
    check_collection_name(collection)
    work, skipped = plan_work(sources, options or Options())
    if not work:
        left_out = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common(8))
        raise CannotIngest(f"Nothing to ingest there{f' (left out: {left_out})' if left_out else ''}.")
    name = resolve(engine, collection)
    ingest_id, ids = put_in_line(engine, name, work)
    return Ingest(ingest_id, ids, skipped, name, Counter(one.kind for one in work))


def put_in_line(engine: Engine, collection: str, work: Sequence[Work]) -> tuple[str, list[int]]:
    """Write a row for each piece of work; returns the ingest's id and the rows' ids."""
    ingest_id = str(uuid.uuid4())
    rows = [
        {
            "ingest_id": ingest_id,
            "collection": collection,
            "kind": one.kind,
            "path": one.path,
            "options": one.options,
        }
        for one in work
    ]
    ids: list[int] = []
    with transaction(engine) as session:
        for start in range(0, len(rows), _ROWS):
            statement = insert(IngestFile).returning(IngestFile.id, sort_by_parameter_order=True)
            ids.extend(session.scalars(statement, rows[start : start + _ROWS]))
    return ingest_id, ids


def wake(app: Any, file_ids: Sequence[int]) -> None:
    """Publish a message for each file through the Celery app. One too many is harmless."""
    with app.producer_pool.acquire(block=True, timeout=10) as producer:  # one connection for all of them
        for file_id in file_ids:
            app.send_task(
                TASK, kwargs={"file_id": file_id}, queue=RETRIEVAL, ignore_result=True, producer=producer
            )


def progress(engine: Engine, ingest_id: str) -> Progress:
    """The state of an ingest in one look. Raises NotFound."""
    of_this = IngestFile.ingest_id == ingest_id
    with transaction(engine) as session:
        counts = session.execute(
            select(
                func.count(),
                *(func.count(case((IngestFile.status == status, 1))) for status in FileStatus),
                *(
                    func.coalesce(func.sum(column), 0)
                    for column in (
                        IngestFile.documents,
                        IngestFile.chunks_added,
                        IngestFile.chunks_unchanged,
                        IngestFile.chunks_removed,
                        IngestFile.documents_removed,
                    )
                ),
            ).where(of_this)
        ).one()
        if not counts[0]:
            raise NotFound(f"There is no ingest {ingest_id!r}.")
        brings = IngestFile.kind.not_in((WorkKind.PRUNE, WorkKind.DELETE))  # the others only take away
        empty = and_(IngestFile.status == FileStatus.DONE, IngestFile.documents == 0, brings)
        noted = func.cardinality(IngestFile.notes) > 0
        said = session.execute(
            select(IngestFile.path, IngestFile.error, IngestFile.notes, empty)
            .where(of_this, or_(IngestFile.error.is_not(None), noted, empty))
            .order_by(IngestFile.id)
        ).all()
    files, pending, running, done, failed, *sums = (int(value) for value in counts)
    documents, added, unchanged, removed, documents_removed = sums
    return Progress(
        files,
        pending,
        running,
        done,
        failed,
        documents,
        added,
        unchanged,
        removed,
        failures=[(path, error) for path, error, _, _ in said if error is not None],
        notes=[
            (path, note)
            for path, _, notes, empty in said
            for note in [*notes, *([_NO_TEXT] if empty else [])]
        ],
        documents_removed=documents_removed,
    )


def unclaimed(engine: Engine, ingest_id: str | None = None, limit: int = 1000) -> list[int]:
    """Ids of files that wait for a worker, or whose worker was lost; of one ingest, or of all."""
    statement = select(IngestFile.id).where(free()).order_by(IngestFile.id).limit(limit)
    if ingest_id is not None:
        statement = statement.where(IngestFile.ingest_id == ingest_id)
    with transaction(engine) as session:
        return list(session.scalars(statement))


def somebody_works(engine: Engine) -> bool:
    """Whether any file of any ingest is being worked on right now."""
    busy = select(IngestFile.id).where(is_working(IngestFile)).limit(1)
    with transaction(engine) as session:
        return session.scalar(busy) is not None


def free() -> ColumnElement[bool]:
    """True for a row that may be claimed."""
    lost = and_(IngestFile.status == FileStatus.RUNNING, ~is_working(IngestFile))
    return or_(IngestFile.status == FileStatus.PENDING, lost)


def is_working(file: Any) -> ColumnElement[bool]:
    """True for a row (of IngestFile or an alias) whose worker was heard of lately by the database's clock."""
    lately = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, STALE_SECONDS)
    touched = func.coalesce(file.touched_at, file.created_at)
    return and_(file.status == FileStatus.RUNNING, touched >= lately)


def held(file_id: int, worker: str) -> Update:
    """UPDATE of a row that `worker` still holds; touches it. It matches nothing once another has taken it."""
    return (
        update(IngestFile)
        .where(IngestFile.id == file_id, IngestFile.worker == worker, IngestFile.status == FileStatus.RUNNING)
        .values(touched_at=func.now())
    )
