"""`cragline retention`: old months go, with everything of their batches."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from api.cli.acting import By, Reason, actor, moment
from api.cli.output import console, print_json, table
from api.cli.preflight import NotConfirmed
from shared import retention as work
from shared.clean import counted
from shared.db import get_engine
from shared.errors import UsageError
from shared.export import export_batch
from shared.retention import Month


class Form(StrEnum):
    JSONL = "jsonl"
    PARQUET = "parquet"


def retention(
    older_than: Annotated[
        str | None, typer.Option(help="Months whose batches all ended longer ago than this, e.g. 90d.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="Months whose batches all ended before this date, e.g. 2026-06-01.")
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write everything of a batch into files there first.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="Of the archive.")] = Form.JSONL,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go, and what stays.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Drop without asking.")] = False,
    reason: Reason = None,
    by: By = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Drop whole months of batches that are over. Open batches, and months with one, are never touched."""
    cutoff = _cutoff(older_than, before)
    engine, out = get_engine(), Console(stderr=json)
    found = work.months(engine, cutoff)
    going = [month for month in found if not month.blocked_by]
    if not json:
        _print_months(out, found)
    if dry_run or not going:
        if json:
            print_json({"months": [_shown(month) for month in found], "dropped": {}})
        elif not going:
            out.print("Nothing is old enough.", highlight=False)
        return
    _confirm(going, yes=yes, ask=not json)
    dropped = {
        f"{month.month:%Y-%m}": work.drop(
            engine, month.month, cutoff, actor=actor(by), reason=reason, archive=_archiver(archive, form)
        )
        for month in going
    }
    if json:
        print_json({"months": [_shown(month) for month in found], "dropped": dropped})
        return
    for month, deleted in dropped.items():
        runs = counted(deleted.get("runs", 0), "question")
        said = f"{month}: {counted(deleted.get('batches', 0), 'batch')} with {runs} dropped."
        out.print(said, markup=False, highlight=False)


def _cutoff(older_than: str | None, before: str | None) -> datetime:
    if (older_than is None) == (before is None):
        raise UsageError("Say what is old: either --older-than 90d or --before 2026-06-01.")
    found = moment(older_than, "--older-than") if older_than is not None else moment(before or "", "--before")
    if found > datetime.now(UTC):
        raise UsageError("That is in the future.")
    return found


def _archiver(folder: Path | None, form: Form) -> Callable[[int], str] | None:
    if folder is None:
        return None

    def archive(batch_id: int) -> str:
        place = folder / f"batch-{batch_id}"
        export_batch(get_engine(), batch_id, place, form.value)
        return str(place)

    return archive


def _confirm(going: list[Month], *, yes: bool, ask: bool) -> None:
    if yes:
        return
    batches = sum(len(month.batches) for month in going)
    what = f"{counted(len(going), 'month')} with {counted(batches, 'batch')}"
    if not (ask and sys.stdin.isatty()):
        raise NotConfirmed(f"Nothing was dropped: {what} would go. Say `--yes` if that is meant.")
    if not typer.confirm(f"Drop {what} for ever?", err=True):
        raise NotConfirmed("Nothing was dropped.")


def _shown(month: Month) -> dict[str, Any]:
    return {
        "month": f"{month.month:%Y-%m}",
        "batches": [batch.batch_id for batch in month.batches],
        "runs": sum(batch.runs for batch in month.batches),
        "stays_because": month.blocked_by or None,
    }


def _print_months(out: Console, found: list[Month]) -> None:
    rows = [
        (f"{month.month:%Y-%m}", len(month.batches), sum(batch.runs for batch in month.batches), _fate(month))
        for month in found
    ]
    (out if out.is_terminal else console()).print(table(("month", "batches", "questions", ""), rows))


def _fate(month: Month) -> str:
    return f"stays: {month.blocked_by}" if month.blocked_by else "goes"
