"""`cragline key ...`: the keys of the HTTP API."""

from typing import Annotated

import typer

from api.cli.output import console, in_bigint, print_json, print_rows
from shared import keys
from shared.db import get_engine

app = typer.Typer(help="Keys of the HTTP API: create, list, revoke.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
_COLUMNS = ("id", "name", "owner", "scopes", "token_start", "created_at", "last_used_at", "revoked_at")


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for, in your words.")],
    owner: Annotated[
        str | None, typer.Option(help="Whose batches it submits and sees. Left out: the name.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(help="submit, read or admin (everything, of every owner). Left out: submit and read."),
    ] = None,
    json: Json = False,
) -> None:
    """Make a key. It is shown this once, and stored as a hash only."""
    scopes = scope or ["submit", "read"]
    number, token = keys.create(get_engine(), name, owner or name, scopes)
    if json:
        print_json({"id": number, "key": token, "owner": owner or name, "scopes": scopes})
        return
    print(token)
    typer.echo(
        f"Key {number} of {owner or name!r}. It is not shown again; clients read it from CRAGLINE_API_KEY.",
        err=True,
    )


@app.command("list")
def list_(json: Json = False) -> None:
    """Every key, without its secret."""
    rows = keys.list_keys(get_engine())
    if json:
        print_json(rows)
    elif rows:
        print_rows(console(), _COLUMNS, [[row[column] for column in _COLUMNS] for row in rows])
    else:
        console().print("There is no key yet: `cragline key create NAME`.", highlight=False)


@app.command()
def revoke(
    key: Annotated[int, typer.Argument(metavar="KEY", help="The key's number.", callback=in_bigint("key"))],
) -> None:
    """End a key at once."""
    name = keys.revoke(get_engine(), key)
    console().print(f"Key {key} ({name}) is revoked.", markup=False, highlight=False, soft_wrap=True)
