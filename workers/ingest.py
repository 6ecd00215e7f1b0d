"""The task behind `cragline ingest`: take a file, bring its documents in, say how it went."""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sqlalchemy import Engine, exists, func, select, update
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.orm import aliased

from shared.clean import clean_text, one_line
from shared.db import transaction
from shared.errors import CallError, CraglineError
from shared.ingest import free, held, is_working
from shared.statuses import FileStatus
from shared.tables import IngestFile
from workers.models.roles import Embedder
from workers.stores.qdrant import VectorStore
from workers.stores.sync import Change, Sync
from workers.stores.work import perform

HEARTBEAT_SECONDS = 10.0
MAX_LOST = 3  # workers a file may take down with it
TRIES = 4  # of one call to the embedder or the store
RETRY_CAP = 60.0  # seconds
RETAKEN = "begun again, because the worker that had it was lost"

_log = logging.getLogger(__name__)


class _Lost(Exception):
    """Another worker has taken the file, because this one was silent for too long."""


@dataclass(frozen=True)
class _Job:
    file_id: int
    worker: str  # unique for each claim, so that an earlier holder of the row knows it lost it
    path: str
    collection: str
    kind: str
    options: dict[str, Any]


def ingest_file(
    file_id: int,
    *,
    store: VectorStore,
    embedder: Embedder,
    engine: Engine,
    chunk_tokens: int,
    chunk_overlap: int,
) -> None:
    """Ingest one file, if nobody else has it; its row says how it went, so nothing is raised for a bad file.

    Idempotent and resumable: killed at any point and called again (at once for a `pending` row, after
    `STALE_SECONDS` for a `running` one), it ends in the same state. Raises only when the database fails.
    """
    waiting: int | None = file_id
    while waiting is not None:
        job = claim(engine, waiting)
        if job is None:
            return
        try:
            with _Heartbeat(engine, job) as heartbeat:
                _work(job, heartbeat, store, embedder, engine, chunk_tokens, chunk_overlap)
        except _Lost:
            return
        # the same file, handed in twice: `claim` refused it while we had it, and its message is spent
        waiting = _twin(engine, job)


def _work(
    job: _Job,
    heartbeat: "_Heartbeat",
    store: VectorStore,
    embedder: Embedder,
    engine: Engine,
    chunk_tokens: int,
    chunk_overlap: int,
) -> None:
    notes: list[str] = []

    def report(change: Change) -> None:
        heartbeat.check()
        _count(engine, job, change)

    sync = Sync(
        engine, store, embedder, job.collection, chunk_tokens, chunk_overlap, report, heartbeat.patiently
    )
    error: str | None = None
    try:
        perform(sync, job.kind, job.path, job.options, notes)
    except (_Lost, OperationalError, InterfaceError):
        raise  # nothing can be written: the row goes stale, and is taken again
    except (CraglineError, CallError) as known:
        error = str(known)
    except Exception as unknown:  # noqa: BLE001 - one bad file must not cost the others
        _log.exception("ingest of file %s failed", job.file_id)
        error = f"{job.path}: {type(unknown).__name__}: {one_line(str(unknown), 300)}"
    _finish(engine, job, error, notes)


def claim(engine: Engine, file_id: int) -> _Job | None:
    """Take a file that waits or whose worker was lost; None when there is nothing to take.

    While another row of the same file and collection is being worked on, this one waits for it.
    """
    with transaction(engine) as session:
        row = session.get(IngestFile, file_id)
        if row is None:
            return None
        # two workers that look for twins at the same time must not both find none
        session.execute(
            select(func.pg_advisory_xact_lock(func.hashtextextended(f"{row.collection}/{row.path}", 0)))
        )
        session.refresh(row)
        lost = row.status == FileStatus.RUNNING
        losses = row.notes.count(RETAKEN) + lost
        twin = aliased(IngestFile)
        other_runs = exists().where(
            twin.collection == row.collection, twin.path == row.path, twin.id != file_id, is_working(twin)
        )
        job = _Job(file_id, _worker_name(), row.path, row.collection, row.kind, row.options or {})
        taken = session.scalar(
            update(IngestFile)
            .where(IngestFile.id == file_id, free(), ~other_runs)
            .values(
                status=FileStatus.RUNNING,
                worker=job.worker,
                started_at=func.now(),
                touched_at=func.now(),
                documents=0,
                chunks_added=0,
                chunks_unchanged=0,
                chunks_removed=0,
                documents_removed=0,
                notes=[*row.notes, RETAKEN] if lost else row.notes,
            )
            .returning(IngestFile.id)
        )
    if taken is None:
        return None
    if losses >= MAX_LOST:
        _finish(
            engine,
            job,
            f"{job.path}: its worker was lost {losses} times; the file may be what kills it.",
            [],
        )
        return None
    return job


def _twin(engine: Engine, job: _Job) -> int | None:
    """Another row of the same file that waits."""
    same = (IngestFile.collection == job.collection, IngestFile.path == job.path)
    with transaction(engine) as session:
        return session.scalar(select(IngestFile.id).where(*same, free()).order_by(IngestFile.id).limit(1))


def _count(engine: Engine, job: _Job, change: Change) -> None:
    counted = {name: getattr(IngestFile, name) + number for name, number in vars(change).items() if number}
    with transaction(engine) as session:
        if session.scalar(held(job.file_id, job.worker).values(counted).returning(IngestFile.id)) is None:
            raise _Lost


def _finish(engine: Engine, job: _Job, error: str | None, notes: list[str]) -> None:
    """End the row, if it is still ours."""
    values: dict[str, Any] = {
        "status": FileStatus.FAILED if error else FileStatus.DONE,
        "error": clean_text(error) if error else None,
        "notes": IngestFile.notes + [clean_text(note) for note in notes],
        "ended_at": func.now(),
    }
    with transaction(engine) as session:
        session.execute(held(job.file_id, job.worker).values(values))


def _worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class _Heartbeat:
    """Touches the row while its file is being worked on, however long a single step takes."""

    def __init__(self, engine: Engine, job: _Job) -> None:
        self._engine = engine
        self._job = job
        self._ended = threading.Event()
        self._lost = False
        self._thread = threading.Thread(target=self._beat, name=f"ingest-{job.file_id}", daemon=True)

    def __enter__(self) -> "_Heartbeat":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def check(self) -> None:
        if self._lost:
            raise _Lost

    def patiently(self, call: Callable[[], Any]) -> Any:
        """The result of `call`; an error that may pass is tried again, a few times."""
        for attempt in range(1, TRIES + 1):
            self.check()
            try:
                return call()
            except CallError as error:
                if not error.transient or attempt == TRIES:
                    raise
                wait = error.retry_after if error.retry_after is not None else 2.0 ** (attempt - 1)
                time.sleep(min(wait, RETRY_CAP))
        raise AssertionError("the last try returns or raises")

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                with transaction(self._engine) as session:
                    ours = held(self._job.file_id, self._job.worker).returning(IngestFile.id)
                    held_still = session.scalar(ours) is not None
            except (OperationalError, InterfaceError):
                continue  # the next one may get through; if none does, the row goes stale, as it should
            if not held_still:
                self._lost = True
                return
