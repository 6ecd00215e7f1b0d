"""`cragline sql`: ask the history anything, read-only."""

import csv
import sys
from pathlib import Path
from typing import Annotated

import typer

from api.cli.output import console, csv_cell, print_json, print_rows
from shared import history
from shared.db import get_engine
from shared.errors import CraglineError, UsageError


def sql(
    statement: Annotated[
        str | None, typer.Argument(help="One query. `-` reads it from standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the query from a file.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
    timeout: Annotated[
        float, typer.Option(min=0.001, max=86400, help="Seconds after which the query is given up.")
    ] = 300,
) -> None:
    """Run one read-only query over the views of the schema `history` (docs/history.md lists them)."""
    if as_csv and json:
        raise UsageError("--csv or --json, not both.")
    words = _statement(statement, file)
    if not words.strip().rstrip(";"):
        raise UsageError("The query is empty.")
    result = history.query(get_engine(), words, timeout=timeout)
    if json:
        names = _unique(result.columns)
        print_json([dict(zip(names, row, strict=True)) for row in result.rows])
    elif as_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(result.columns)
        writer.writerows([csv_cell(value) for value in row] for row in result.rows)
    else:
        out = console()
        print_rows(out, result.columns, result.rows, width=200)
        out.print(f"{len(result.rows)} rows" if len(result.rows) != 1 else "1 row")


def _statement(statement: str | None, file: Path | None) -> str:
    if (statement is None) == (file is None):
        raise UsageError("Give one query, or --file.")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not UTF-8"
            raise CraglineError(f"{file}: cannot be read ({why}).") from None
    return sys.stdin.read() if statement == "-" else str(statement)


def _unique(columns: list[str]) -> list[str]:
    """The names as keys of an object: one that is repeated gets a number, for no column may be lost."""
    names: list[str] = []
    for column in columns:
        name, count = column, 1
        while name in names:
            count += 1
            name = f"{column}_{count}"
        names.append(name)
    return names
