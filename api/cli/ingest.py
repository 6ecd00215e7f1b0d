"""`cragline ingest`: hand files to the workers, watch them, say how it went."""

import json as jsonlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine

from api.cli.output import printable
from api.cli.patience import Patience
from shared import ingest as work
from shared.clean import counted
from shared.db import get_engine
from shared.errors import CraglineError
from shared.settings import get_settings
from shared.sources import Options
from shared.statuses import WorkKind

POLL_SECONDS = 0.5
REPUBLISH_SECONDS = 10.0  # a message can be lost; one too many is harmless
NOBODY_SECONDS = 20.0
SHOWN = 20  # errors and notes shown one by one; --json has them all


class NobodyThere(CraglineError):
    """No worker takes the files."""


class QueueAway(CraglineError):
    """The messages could not be sent; the files stay in line."""


def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Files (.txt .md .html .pdf .docx .jsonl .csv), folders, https://... pages, "
            "git+https://host/path[@ref] repositories, folders of git checkouts."
        ),
    ],
    collection: Annotated[
        str | None,
        typer.Option("--collection", "-c", help="Collection to fill. Default: CRAGLINE_COLLECTION."),
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Only files that fit this glob, in folders and repositories.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="No files that fit this glob.")] = None,
    depth: Annotated[
        int, typer.Option(min=0, max=20, help="Pages: follow links so far, within the host.")
    ] = 0,
    sitemap: Annotated[
        bool, typer.Option("--sitemap", help="Pages: take those of the host's sitemap.")
    ] = False,
    max_pages: Annotated[
        int, typer.Option(min=1, max=100_000, help="Pages: the most that are fetched for one URL.")
    ] = 100,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Remove documents of these folders, sites and repositories that are gone."
        ),
    ] = False,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Fetch from addresses of your own network, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Bring files, pages and repositories into a collection. Again: unchanged passages are skipped."""
    options = Options(
        tuple(include or ()), tuple(exclude or ()), depth, sitemap, max_pages, allow_private, prune
    )
    made = work.create(get_engine(), sources, collection or get_settings().collection, options)
    console = Console(stderr=json)
    ended = watch_work(console, made.ingest_id, made.file_ids, quiet=json)
    if json:
        print(jsonlib.dumps(summary(made, ended), ensure_ascii=False))
    else:
        _tell(console, made, ended, prune)
    if ended.failed:
        raise typer.Exit(1)


def watch_work(console: Console, ingest_id: str, file_ids: list[int], *, quiet: bool) -> work.Progress:
    """Publish work that is in line and stay until it has ended; Ctrl-C leaves the workers at it."""
    from shared.queue import make_app

    app = make_app(get_settings())

    def publish(ids: list[int]) -> None:
        _publish(app, ids)

    try:
        publish(file_ids)
        with _bar(console, len(file_ids), off=quiet) as show:
            return follow(get_engine(), ingest_id, publish, show)
    except KeyboardInterrupt:
        console.print(
            f"Stopped watching; the workers go on with {counted(len(file_ids), 'file')} (ingest {ingest_id}).",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from None


def follow(
    engine: Engine,
    ingest_id: str,
    publish: Callable[[list[int]], None],
    show: Callable[[work.Progress], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> work.Progress:
    """Wait until every file has ended; publish again what nobody took.

    Raises NobodyThere when no file is taken for `NOBODY_SECONDS` and no worker is busy with other files,
    CraglineError that names the ingest when the database stays away. A queue that is away is tried again.
    """
    patience = Patience(f"The files stay in line (ingest {ingest_id}) and the workers go on.", sleep, clock)
    published = moved = clock()
    before: work.Progress | None = None
    while True:
        asked = clock()
        now, busy = patience(lambda: (work.progress(engine, ingest_id), work.somebody_works(engine)))
        moved += clock() - asked  # nobody could have taken a file while the database was away
        show(now)
        if now.ended:
            return now
        if now != before:
            before, moved = now, clock()
        if busy:
            moved = clock()  # a big file takes its time, or those of others come first
        if clock() - moved > NOBODY_SECONDS:
            raise NobodyThere(
                f"No worker took a file for {NOBODY_SECONDS:.0f} seconds. Is the stack up? `cragline up -d` "
                f"starts it, `cragline doctor` looks. Still in line (ingest {ingest_id}): "
                f"{counted(now.pending + now.running, 'file')}, which a worker takes when it comes; ingesting "
                "again is harmless too."
            )
        if clock() - published > REPUBLISH_SECONDS:
            with suppress(QueueAway):  # told by NobodyThere, if it stays away
                publish(patience(lambda: work.unclaimed(engine, ingest_id)))
            published = clock()
        sleep(POLL_SECONDS)


def summary(made: work.Ingest, ended: work.Progress) -> dict[str, Any]:
    """What `--json` prints. `files` counts sites and repositories as well."""
    return {
        "ingest_id": made.ingest_id,
        "collection": made.collection,
        "files": _files(made, ended),
        "done": _files(made, ended) - ended.failed,
        "failed": ended.failed,
        "documents": ended.documents,
        "chunks_added": ended.chunks_added,
        "chunks_unchanged": ended.chunks_unchanged,
        "chunks_removed": ended.chunks_removed,
        "documents_removed": ended.documents_removed,
        "skipped": dict(made.skipped),
        "errors": [{"path": path, "error": error} for path, error in ended.failures],
        "notes": [{"path": path, "note": note} for path, note in ended.notes],
    }


def _publish(app: Any, ids: list[int]) -> None:
    from kombu.exceptions import OperationalError
    from redis.exceptions import RedisError

    try:
        work.wake(app, ids)
    except (OperationalError, RedisError, OSError) as error:
        raise QueueAway(
            f"The queue cannot be reached ({type(error).__name__}). The files stay in line and are taken "
            "when it is back and `cragline ingest` is called again; `cragline doctor` looks what is wrong."
        ) from None


@contextmanager
def _bar(console: Console, files: int, off: bool) -> Iterator[Callable[[work.Progress], None]]:
    """A progress bar on a terminal, nothing elsewhere: a log wants no animation."""
    if off or not sys.stdout.isatty():
        yield lambda now: None
        return
    columns = (
        TextColumn("ingest"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("files; chunks: {task.fields[chunks]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("ingest", total=files, chunks=0)

        def show(now: work.Progress) -> None:
            bar.update(task, completed=now.done + now.failed, chunks=now.chunks_added + now.chunks_unchanged)

        yield show


def _files(made: work.Ingest, ended: work.Progress) -> int:
    """Pieces of work that bring something in."""
    return ended.files - made.kinds[WorkKind.PRUNE]


def _tell(console: Console, made: work.Ingest, ended: work.Progress, prune: bool) -> None:
    files = _files(made, ended)
    what = "file" if set(made.kinds) <= {WorkKind.FILE, WorkKind.PRUNE} else "source"
    lines = [
        f"{max(files - ended.failed, 0):,} of {counted(files, what)} ingested into {made.collection!r}: "
        f"{counted(ended.documents, 'document')}; "
        f"chunks: {ended.chunks_added} added, {ended.chunks_unchanged} unchanged, "
        f"{ended.chunks_removed} removed."
    ]
    if prune:
        lines.append(f"Pruned: {counted(ended.documents_removed, 'document')} whose source is gone.")
    if made.skipped:
        left_out = ", ".join(f"{count} {reason}" for reason, count in made.skipped.most_common(8))
        lines.append(f"Left out of the folders: {counted(made.skipped.total(), 'file')} ({left_out}).")
    # an error names its file itself
    lines += _some("Not ingested", [error for _, error in ended.failures])
    lines += _some("Noted", [f"{path}: {note}" for path, note in ended.notes])
    for line in lines:
        console.print(escape(printable(line.replace("\n", " "))), highlight=False, soft_wrap=True)


def _some(title: str, entries: list[str]) -> list[str]:
    if not entries:
        return []
    more = [f"  ... and {len(entries) - SHOWN} more (--json has all)"] if len(entries) > SHOWN else []
    return [f"{title}:", *(f"  {entry}" for entry in entries[:SHOWN]), *more]
