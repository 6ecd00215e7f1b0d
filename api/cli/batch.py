"""`cragline batch ...` and `cragline results`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from sqlalchemy import Engine

from api.cli import watch
from api.cli.output import console, duration, print_json, table
from api.results import ResultRow, save, write_csv, write_jsonl
from shared import history
from shared.db import get_engine

app = typer.Typer(help="Batches: list, show, watch.", no_args_is_help=True)
BatchId = Annotated[int, typer.Argument(metavar="BATCH", help="The batch's number.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 50, json: Json = False
) -> None:
    """The newest batches."""
    rows = history.list_batches(get_engine(), limit)
    if json:
        print_json([watch.as_json(row) for row in rows])
        return
    columns = ("batch_id", "name", "pipeline", "collection", "status", *history.COUNTS, "submitted_at")
    console().print(table(columns, [[row[column] for column in columns] for row in rows]))
    if not rows:
        console().print("There is no batch yet: `cragline submit FILE`.")


@app.command()
def show(batch: BatchId, json: Json = False) -> None:
    """One batch: its counts, its plan, and where its questions came from."""
    engine = get_engine()
    row = history.progress(engine, batch)
    details = history.batch_details(engine, batch)
    if json:
        print_json(watch.as_json(row) | details)
        return
    out = console()
    shown = {key: value for key, value in row.items() if key not in ("rate_per_minute", "eta_seconds")}
    shown |= {
        "rate per minute": row["rate_per_minute"],
        "eta": duration(row["eta_seconds"]) if row["eta_seconds"] else None,
    }
    out.print(table(("", f"batch {batch}"), list(shown.items()), width=None))
    plan = details["plan"]
    settings = plan["params"] | {
        "provider": plan["provider"],
        "models": plan["models"],
        "prompts": plan["prompts"],
    }
    out.print(table(("setting", "value"), list(settings.items()), title="plan", width=None))
    source = details["source"]
    wanted = ("file", "format", "encoding", "delimiter", "question_column", "notes")
    out.print(table(("", "source"), [(key, source.get(key)) for key in wanted], width=None))


@app.command("watch")
def watch_(batch: BatchId, json: Json = False) -> None:
    """Stay until the batch has ended."""
    row = watch.until_ended(get_engine(), batch, Console(stderr=json), quiet=json)
    if json:
        print_json(watch.as_json(row))


def results(
    batch: BatchId,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .csv or .jsonl file. Left out: CSV to the screen."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines instead of CSV.")] = False,
) -> None:
    """The answers in input order: the original columns, then answer, disposition, reason, sources, ..."""
    engine = get_engine()
    row = history.progress(engine, batch)
    source = history.batch_details(engine, batch)["source"]
    # Objects bring their own keys; cells (also those of a JSONL of plain strings) stand under the header.
    keys = history.original_keys(engine, batch) if source["format"] == "jsonl" else []
    header, names = (keys, None) if keys else (source["header"], source["columns"])
    width = 0 if keys else history.widest_row(engine, batch)
    rows = result_rows(engine, batch)
    if output is not None:
        count = save(output, header, names, rows, width=width)
        Console(stderr=True).print(f"{count} rows written to {output}.", markup=False, highlight=False)
    elif json:
        write_jsonl(sys.stdout, names, rows)
    else:
        write_csv(sys.stdout, header, rows, width=width)
    if not history.has_ended(row):
        open_ = row["pending"] + row["running"]
        Console(stderr=True).print(
            f"The batch has not ended: {open_} questions are still open.", style="yellow"
        )


def result_rows(engine: Engine, batch_id: int) -> Iterator[ResultRow]:
    for row in history.results(engine, batch_id):
        empty = row.run_id is None
        yield ResultRow(
            number=row.row_number,
            original=row.original,
            answer=row.answer,
            disposition="empty" if empty else row.status,
            reason="the row has no question" if empty else row.reason,
            sources=row.sources,
            web_used=row.web_used,
            error=row.error,
            run_id=row.run_id,
        )
