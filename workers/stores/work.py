"""What a row of `ingest_files` asks for, done: one function for each kind of work."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select

from shared.db import transaction
from shared.statuses import WorkKind
from shared.tables import Collection, IngestedDocument
from workers.stores.git import opened
from workers.stores.loaders import load
from workers.stores.loaders.code import load_repository
from workers.stores.sync import Sync
from workers.stores.web.crawl import Walk
from workers.stores.web.fetch import Fetcher

Options = dict[str, Any]  # shared.sources.Options as JSON; a missing key is its default


def perform(sync: Sync, kind: str, path: str, options: Options, notes: list[str]) -> None:
    """Do the work; what was odd goes into `notes`. Doing it again is harmless.

    Raises LoadError and FetchError (CraglineError), DimensionMismatch, the errors of embedder and store.
    """
    _KINDS[WorkKind(kind)](sync, path, options, notes)


def _file(sync: Sync, path: str, options: Options, notes: list[str]) -> None:
    sync.run(load(Path(path), notes), path)


def _site(sync: Sync, path: str, options: Options, notes: list[str]) -> None:
    prune = bool(options.get("prune"))
    walk = Walk(
        start=path,
        notes=notes,
        fetcher=Fetcher(allow_private=bool(options.get("allow_private"))),
        depth=int(options.get("depth", 0)),
        sitemap=bool(options.get("sitemap")),
        max_pages=int(options.get("max_pages", 100)),
        missing_start=prune and bool(sync.sources_of(path)),
    )
    sync.run(walk.documents(), path, gone=walk.gone if prune else _none)


def _repository(sync: Sync, path: str, options: Options, notes: list[str]) -> None:
    private = bool(options.get("allow_private"))
    with opened(path, allow_private=private, allow_file=private) as repository:

        def gone(unseen: list[str]) -> list[str]:
            """A file that a glob leaves out now, or that has grown too long, is still there: kept."""
            there = {f"{repository.name}:{entry.path}" for entry in repository.entries([])}
            return [source for source in unseen if source not in there]

        documents = load_repository(
            repository, options.get("include") or (), options.get("exclude") or (), notes
        )
        # without its ref: a file of v1 that is not in v2 is gone
        sync.run(documents, repository.name, gone=gone if options.get("prune") else _none)


def _prune(sync: Sync, path: str, options: Options, notes: list[str]) -> None:
    """Documents of files that were below the folder `path` and are gone."""
    below = IngestedDocument.path.startswith(path.rstrip("/") + "/", autoescape=True)
    statement = select(IngestedDocument.source, IngestedDocument.path).where(
        IngestedDocument.collection == sync.collection, IngestedDocument.root == IngestedDocument.path, below
    )
    # raises where the folder itself cannot be looked into: then nothing is known to be gone
    unmounted = not os.listdir(path)
    with transaction(sync.engine) as session:
        listed = session.execute(statement.order_by(IngestedDocument.id)).all()
    missing = {file for file in {file for _, file in listed} if _is_gone(file)}
    if missing and unmounted:
        notes.append(
            f"the folder is empty, as a disk is that is not mounted: its {len(missing)} files are kept; "
            "`cragline collection delete` removes a collection as a whole"
        )
        return
    sync.drop([source for source, file in listed if file in missing])


def _delete(sync: Sync, path: str, options: Options, notes: list[str]) -> None:
    """The points first: killed in between, the rows are still there, and the work is taken again."""
    sync.patiently(lambda: sync.store.drop(sync.collection))
    with transaction(sync.engine) as session:
        session.execute(delete(IngestedDocument).where(IngestedDocument.collection == sync.collection))
        session.execute(delete(Collection).where(Collection.name == sync.collection))


def _is_gone(path: str) -> bool:
    """Only what is known to be gone; a folder that may not be read says nothing about its files."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _none(unseen: list[str]) -> list[str]:
    return []


_KINDS: dict[WorkKind, Callable[[Sync, str, Options, list[str]], None]] = {
    WorkKind.FILE: _file,
    WorkKind.SITE: _site,
    WorkKind.REPOSITORY: _repository,
    WorkKind.PRUNE: _prune,
    WorkKind.DELETE: _delete,
}
