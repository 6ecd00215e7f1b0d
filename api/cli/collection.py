"""`cragline collection ...`: what is known of collections, their aliases, and the end of one."""

from typing import Annotated, Any

import typer
from rich.console import Console

from api.cli.ingest import watch_work
from api.cli.output import console, print_json, print_rows, table
from shared import ingest, knowledge
from shared.clean import counted
from shared.db import get_engine
from shared.errors import CraglineError, UsageError
from shared.ingest import check_collection_name
from shared.sources import Work
from shared.statuses import WorkKind

app = typer.Typer(help="Collections: list, show, describe, alias, delete.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A collection, or an alias of one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
_COLUMNS = ("name", "documents", "chunks", "aliases", "embedding_model", "ingested_at", "description")


@app.command("list")
def list_(json: Json = False) -> None:
    """Every collection."""
    rows = knowledge.list_collections(get_engine())
    if json:
        print_json(rows)
        return
    out = console()
    if not rows:
        out.print("There is no collection yet: `cragline ingest PATH`.", highlight=False)
        return
    print_rows(out, _COLUMNS, [[row[column] for column in _COLUMNS] for row in rows])


@app.command()
def show(name: Name, json: Json = False) -> None:
    """One collection, and what it was filled from."""
    row = knowledge.show_collection(get_engine(), name)
    if json:
        print_json(row)
        return
    out = console()
    facts = [(key, value) for key, value in row.items() if key != "sources" and value not in (None, "", [])]
    out.print(table(("", f"collection {row['name']}"), facts, width=None))
    if row["sources"]:
        columns = ("source", "documents", "ingested_at")
        out.print(table(columns, [[one[key] for key in columns] for one in row["sources"]], width=None))


@app.command()
def describe(
    name: Name, text: Annotated[str, typer.Argument(help="What is in it, in a sentence. Empty: forgotten.")]
) -> None:
    """Say what a collection holds; a pipeline may put it into a prompt."""
    _say(console(), f"{knowledge.describe(get_engine(), name, text)!r} is described.")


@app.command()
def alias(
    name: Annotated[str, typer.Argument(help="The alias.")],
    target: Annotated[str | None, typer.Argument(help="The collection it stands for from now on.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Forget the alias instead.")] = False,
) -> None:
    """Let a name stand for a collection. Batches submitted before keep the collection they were planned with."""
    if remove == (target is not None):
        raise UsageError("Give the collection that the alias is to stand for, or --remove.")
    if target is None:
        _say(
            console(), f"{name!r} stood for {knowledge.remove_alias(get_engine(), name)!r}; it is forgotten."
        )
        return
    before = knowledge.set_alias(get_engine(), check_collection_name(name), target)
    was = f" Before: {before!r}." if before else ""
    _say(console(), f"{name!r} stands for {target!r} now.{was}")


@app.command()
def delete(
    name: Annotated[str, typer.Argument(help="The collection.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if an open batch was planned with it.")
    ] = False,
) -> None:
    """Delete a collection with all its documents. A worker does it."""
    engine, out = get_engine(), console()
    knowledge.check_deletable(engine, name, force=force)
    row = knowledge.show_collection(engine, name)
    held = f"{counted(row['documents'], 'document')}, {counted(row['chunks'], 'chunk')}"
    if not yes:
        typer.confirm(f"Delete the collection {name!r} ({held})?", abort=True)
    ingest_id, ids = ingest.put_in_line(engine, name, [Work(WorkKind.DELETE, "")])
    ended = watch_work(out, ingest_id, ids, quiet=False)
    if ended.failed:
        raise CraglineError(" ".join(error for _, error in ended.failures))
    _say(out, f"{name!r} is deleted: {held}.")


def _say(out: Console, text: Any) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
