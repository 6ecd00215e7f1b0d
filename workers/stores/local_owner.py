"""The local store: one process owns its folder, others of the same home ask the owner.

qdrant-client's local store is for a single process and not safe for threads. The process that serves the
queue `retrieval` owns it, with one lock around every call, and answers read-only questions of other
processes (such as `cragline ask`) on 127.0.0.1. Who has the folder is decided by a file lock, which a
killed process gives up by itself; address and token are in a file only the same user can read.
"""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qdrant_client import QdrantClient

from shared.errors import StackError
from shared.settings import Settings
from shared.stack.state import store_owner_path
from workers.stores.local_words import quicken
from workers.stores.owner_service import OwnerClient, OwnerService
from workers.stores.qdrant import SearchableStore, VectorStore, new_lock, server_store

FOLDER = "qdrant"
LOCK_FILE = "qdrant-owner.lock"
PATIENCE = 20.0  # seconds: for an owner that is just opening, or a guest that is just leaving
_PAUSE = 0.1


@dataclass(frozen=True)
class Holder:
    """Who has the folder: the owner, or a guest that opened it while nobody owned it."""

    pid: int
    role: str  # "owner" or "guest"


def open_store(settings: Settings, own: bool, *, patience: float = PATIENCE) -> SearchableStore:
    """The store in use. With `own` it is a VectorStore that can be written to; see `own_store`.

    Without `own`, on the local store: a client to the owner if there is one, else the folder itself for
    the time being. Raises StackError when the folder cannot be had.
    """
    if settings.qdrant_url:
        return server_store(settings)
    if own:
        return own_store(settings, patience=patience)
    deadline = time.monotonic() + patience
    while True:
        lock = _try_lock(settings.home, "guest")
        if lock is not None:
            return _open_folder(settings.home, lock)
        owner = _read_owner(settings.home)
        if owner is not None and (client := OwnerClient(owner["port"], owner["token"])).alive():
            return client
        if time.monotonic() > deadline:
            raise _taken(settings.home)
        time.sleep(_PAUSE)


def own_store(settings: Settings, *, patience: float = PATIENCE) -> VectorStore:
    """A store to write to: the server that is set, or the local folder, owned until `close`.

    Raises StackError, naming its pid, when another process owns the folder; a guest is waited for.
    """
    if settings.qdrant_url:
        return server_store(settings)
    deadline = time.monotonic() + patience
    while (lock := _try_lock(settings.home, "owner")) is None:
        holder = read_holder(settings.home)
        if (
            holder is not None and holder.role == "owner" and _alive(holder.pid)
        ) or time.monotonic() > deadline:
            raise _taken(settings.home)
        time.sleep(_PAUSE)
    return _open_folder(settings.home, lock, serve=True)


def read_holder(home: Path) -> Holder | None:
    """What the lock file says; only true while the lock is held."""
    found = _read_json(home / LOCK_FILE)
    if found is None or not isinstance(found.get("pid"), int):
        return None
    return Holder(found["pid"], str(found.get("role")))


def _open_folder(home: Path, lock: int, serve: bool = False) -> VectorStore:
    service: OwnerService | None = None

    def release() -> None:
        if service is not None:
            service.stop()
            (store_owner_path(home)).unlink(missing_ok=True)  # ours: we still hold the lock
        os.close(lock)

    try:
        # left by a killed owner: nobody else can have written it, as the lock is ours
        (store_owner_path(home)).unlink(missing_ok=True)
        (home / FOLDER).mkdir(mode=0o700, exist_ok=True)
        quicken()
        client = QdrantClient(path=str(home / FOLDER), force_disable_check_same_thread=True)
    except Exception as error:
        os.close(lock)
        raise StackError(
            f"The local store in {home / FOLDER} cannot be opened ({type(error).__name__}: {error}). "
            "If it is broken, move the folder away and ingest again."
        ) from error
    store = VectorStore(client, lock=new_lock(), on_close=release)
    if serve:
        try:
            service = OwnerService(store)
            _write_private(
                store_owner_path(home), {"pid": os.getpid(), "port": service.port, "token": service.token}
            )
        except BaseException:
            store.close()
            raise
    return store


def _try_lock(home: Path, role: str) -> int | None:
    """The descriptor that holds the lock, or None when another process (or store) has it."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(home / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "role": role}).encode(), 0)
    return descriptor


def _alive(pid: int) -> bool:
    """A lock file may still name a killed holder for the moment in which the next one takes over."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


def _read_owner(home: Path) -> dict[str, Any] | None:
    """Address and token of the owner. Called only while somebody holds the lock; the file is stale when it
    was written by another process than the holder."""
    found, holder = _read_json(store_owner_path(home)), read_holder(home)
    if found is None or holder is None or found.get("pid") != holder.pid:
        return None
    usable = isinstance(found.get("port"), int) and isinstance(found.get("token"), str)
    return found if usable else None


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write_private(path: Path, value: Mapping[str, Any]) -> None:
    """Written whole or not at all, and never readable for others, not even for a moment."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file)
    draft.replace(path)


def _taken(home: Path) -> StackError:
    holder = read_holder(home)
    who = f"process {holder.pid}" if holder else "another process"
    return StackError(
        f"The local store in {home / FOLDER} is in use by {who}. Only one process can own it: stop that one, "
        "or set CRAGLINE_QDRANT_URL to a Qdrant server."
    )
