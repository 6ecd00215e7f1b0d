"""Watching a batch until it has ended: a live bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import Engine

from api.cli.output import duration
from api.cli.patience import Patience
from api.cli.remote import Server
from shared import history
from shared.statuses import BatchStatus

Look = Callable[[], dict[str, Any]]  # reads the batch's row of `batch_progress`

POLL_SECONDS = 0.5
CLOSING_SECONDS = 15.0  # for the dispatcher to write the batch's end once its last run has ended
LINE_SECONDS = 5.0  # between two lines where there is no terminal
SILENT_SECONDS = 60.0  # without any change: say what may be wrong, and the same line again


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `batch_progress` for scripts; `open` is what has not ended."""
    return row | {"open": row["pending"] + row["running"]}


@contextmanager
def interruptible(batch_id: int, console: Console) -> Iterator[None]:
    """Ctrl-C ends the watching, not the batch; say so."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(
            f"Stopped watching; the batch goes on. `cragline batch watch {batch_id}` watches it again.",
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from None


def describe(row: dict[str, Any]) -> str:
    counts = [
        f"{row[name]} {name.replace('_', ' ')}"
        for name in ("answered", "gave_up", "failed", "cancelled")
        if row[name]
    ]
    parts = [", ".join(counts) or "none ended yet"]
    if row["rate_per_minute"]:
        parts.append(f"{float(row['rate_per_minute']):.0f}/min")
    if row["eta_seconds"] is not None:
        parts.append(f"eta {duration(float(row['eta_seconds']))}")
    if row["cost_usd"]:
        parts.append(f"${float(row['cost_usd']):.4f}")
    if row["saved_usd"]:
        parts.append(f"${float(row['saved_usd']):.4f} saved")
    if row.get("status") == BatchStatus.PAUSED:
        parts.append(f"paused: {row['pause_reason']}")
    return "; ".join(parts)


def until_ended(where: Engine | Server, batch_id: int, console: Console, *, quiet: bool) -> dict[str, Any]:
    """Returns the batch's last row of `batch_progress`. Raises NotFound, and CraglineError that names the
    batch when the database or the server stays away."""
    patience = Patience(goes_on(batch_id))

    def read() -> dict[str, Any]:
        return where.progress(batch_id) if isinstance(where, Server) else history.progress(where, batch_id)

    def look() -> dict[str, Any]:
        return patience(read)

    row = look()
    if quiet:
        while not history.has_ended(row):
            time.sleep(POLL_SECONDS)
            row = look()
    elif console.is_terminal:
        row = _with_bar(look, batch_id, console, row)
    else:
        row = _with_lines(look, console, row)
    row = _closed(look, row)
    if not quiet:
        console.print(f"Batch {batch_id} has ended: {describe(row)}.", highlight=False, soft_wrap=True)
    return row


def goes_on(batch_id: int) -> str:
    return f"Batch {batch_id} is submitted and goes on; `cragline batch watch {batch_id}` watches it."


def _closed(look: Look, row: dict[str, Any]) -> dict[str, Any]:
    """The row once the batch itself is no longer `open`, which follows its last run by a tick."""
    until = time.monotonic() + CLOSING_SECONDS
    while row["status"] == BatchStatus.OPEN and time.monotonic() < until:
        time.sleep(POLL_SECONDS / 2)
        row = look()
    return row


def _with_bar(look: Look, batch_id: int, console: Console, row: dict[str, Any]) -> dict[str, Any]:
    columns = (
        TextColumn("batch {task.fields[batch]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    silence = _Silence(console)
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("batch", total=row["submitted"], batch=batch_id, what="")
        while True:
            progress.update(task, completed=history.ended_count(row), what=describe(row))
            if history.has_ended(row):
                return row
            silence.check(row)
            time.sleep(POLL_SECONDS)
            row = look()


def _with_lines(look: Look, console: Console, row: dict[str, Any]) -> dict[str, Any]:
    said, last = float("-inf"), ""
    silence = _Silence(console)
    while not history.has_ended(row):
        line = f"{history.ended_count(row)} of {row['submitted']}: {describe(row)}"
        if time.monotonic() - said >= (LINE_SECONDS if line != last else SILENT_SECONDS):
            said, last = time.monotonic(), line
            console.print(line, highlight=False, soft_wrap=True)
        silence.check(row)
        time.sleep(POLL_SECONDS)
        row = look()
    return row


class _Silence:
    """Says once what may be wrong when nothing moves for a while."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = -1
        self._since = time.monotonic()
        self._said = False

    def check(self, row: dict[str, Any]) -> None:
        if history.ended_count(row) != self._last or row.get("status") == BatchStatus.PAUSED:
            self._last, self._since = history.ended_count(row), time.monotonic()
        elif not self._said and time.monotonic() - self._since > SILENT_SECONDS:
            self._said = True
            self._console.print(
                f"Nothing has ended for {SILENT_SECONDS:.0f} seconds. Do workers and beat run? See `cragline doctor`.",
                style="yellow",
                soft_wrap=True,
            )
