"""`cragline batch ...` and `cragline results`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from api.batch_results import result_layout, result_rows
from api.cli import control, remote, results_into, watch
from api.cli.output import console, duration, in_bigint, print_json, table
from api.cli.remote import ServerOption
from api.cli.remote_results import fetch_results
from api.results import save, write_csv, write_jsonl
from api.results_summary import summary_of
from shared import history
from shared.db import get_engine
from shared.errors import UsageError

app = typer.Typer(help="Batches: list, show, watch, and what can be done to them.", no_args_is_help=True)
BatchId = Annotated[
    int, typer.Argument(metavar="BATCH", help="The batch's number.", callback=in_bigint("batch"))
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many, newest first.")] = 50,
    server: ServerOption = None,
    json: Json = False,
) -> None:
    """The newest batches."""
    there = remote.at(server)
    rows = there.batches(limit) if there else history.list_batches(get_engine(), limit)
    if json:
        print_json([watch.as_json(row) for row in rows])
        return
    out = console()
    if not rows:
        out.print("There is no batch yet: `cragline submit FILE`.", highlight=False)
        return
    columns = _COLUMNS if out.width >= _WIDE else [column for column in _COLUMNS if column not in _EXTRA]
    out.print(table(columns, [[_shown(row, column) for column in columns] for row in rows], width=30))


_COLUMNS = ["batch", "name", "pipeline", "collection", "status", "submitted", "open", "answered", "gave_up"]
_COLUMNS += ["failed", "cancelled", "submitted_at"]
_EXTRA = (
    "pipeline",
    "collection",
    "cancelled",
    "submitted_at",
)  # what a terminal of 80 columns has no room for
_WIDE = 120


def _shown(row: dict[str, Any], column: str) -> Any:
    if column == "batch":
        return row["batch_id"]
    return row["pending"] + row["running"] if column == "open" else row[column]


@app.command()
def show(batch: BatchId, server: ServerOption = None, json: Json = False) -> None:
    """One batch: its counts, its plan, and where its questions came from."""
    if there := remote.at(server):
        row = there.progress(batch)
        details = {name: row.pop(name) for name in ("plan", "source")}
        row.pop("deliveries")
    else:
        engine = get_engine()
        row = history.progress(engine, batch)
        details = history.batch_details(engine, batch)
    if json:
        print_json(watch.as_json(row) | details)
        return
    out = console()
    shown = {key: value for key, value in row.items() if key != "eta_seconds"}
    shown["eta"] = duration(row["eta_seconds"]) if row["eta_seconds"] else None
    out.print(_facts(f"batch {batch}", shown))
    plan = details["plan"]
    settings = plan["params"] | {"provider": plan["provider"], "embeddings": plan["embedding_model"]}
    settings |= {"reuse": plan.get("reuse", "off")}
    settings |= {f"model of {role}": model for role, model in plan["models"].items()}
    settings |= {f"prompt of {role}": version for role, version in plan["prompts"].items()}
    out.print(_facts("plan", settings))
    source = details["source"]
    wanted = ("file", "format", "encoding", "delimiter", "question_column")
    read = {key: source.get(key) for key in wanted} | {"notes": " ".join(source.get("notes") or [])}
    out.print(_facts("source", read))


def _facts(title: str, facts: dict[str, Any]) -> Table:
    """Two columns; what has no value is left out. A tab as the delimiter is shown by its name."""
    named = {"\t": "tab"}
    rows = [(key, named.get(str(value), value)) for key, value in facts.items() if value not in (None, "")]
    return table(("", title), rows, width=None)


@app.command("watch")
def watch_(batch: BatchId, server: ServerOption = None, json: Json = False) -> None:
    """Stay until the batch has ended."""
    there = remote.at(server)
    where = there or get_engine()
    with watch.interruptible(batch, Console(stderr=True)):
        # a wrong number or address is told at once, not waited for
        _ = there.progress(batch) if there else history.progress(get_engine(), batch)
        row = watch.until_ended(where, batch, Console(stderr=json), quiet=json)
    if json:
        print_json(watch.as_json(row))


control.register(app)


def results(
    batch: BatchId,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .csv, .xlsx or .jsonl file. Left out: CSV to the screen."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON lines instead of CSV.")] = False,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="For machines: CSV cells as they are, also those that a spreadsheet runs."
        ),
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(help="The submitted workbook: its copy --output gets the answers beside the questions."),
    ] = None,
    force: Annotated[bool, typer.Option(help="With --into: replace --output when it exists.")] = False,
    server: ServerOption = None,
) -> None:
    """The answers in input order: the original columns, then answer, disposition, reason, sources, ..."""
    if there := remote.at(server):
        if into is not None:
            raise UsageError("--into works on the database itself. Without it, --output answers.xlsx does.")
        fetch_results(there, batch, output, json=json, raw=raw)
        return
    engine = get_engine()
    row = history.progress(engine, batch)
    details = history.batch_details(engine, batch)
    rows = result_rows(engine, batch)
    if into is not None:
        results_into.write(into, output, details["source"], rows, force=force)
        _say_open(row)
        return
    header, names, width = result_layout(engine, batch, details["source"])
    if output is not None:
        summary = summary_of(row, details)
        count = save(output, header, names, rows, width=width, raw=raw, summary=summary)
        said = f"{count} row{'s' * (count != 1)} written to {output}."
        Console(stderr=True).print(said, markup=False, highlight=False, soft_wrap=True)
    elif json:
        write_jsonl(sys.stdout, names, rows)
    else:
        write_csv(sys.stdout, header, rows, width=width, raw=raw)
    _say_open(row)


app.command("results")(results)


def _say_open(row: dict[str, Any]) -> None:
    if not history.has_ended(row):
        open_ = row["pending"] + row["running"]
        Console(stderr=True).print(
            f"The batch has not ended; questions still open: {open_}.", style="yellow", highlight=False
        )
