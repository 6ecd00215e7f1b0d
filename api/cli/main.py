"""The `cragline` command. Each command is a function in its own module; this one only gathers them.

All of these modules are imported at every start, so what is slow to import (Alembic, Celery, Redis, the
readers of files) is imported by the functions that need it.
"""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError
from typer.exceptions import TyperException

from api.cli import batch, collection, compare, db, inprocess, key, runs, sql
from api.cli.doctor import doctor
from api.cli.export import export
from api.cli.ingest import ingest
from api.cli.output import printable
from api.cli.retention import retention
from api.cli.submit import submit
from api.cli.up import down, up
from shared.clean import one_line
from shared.errors import CraglineError
from shared.logs import redact

app = typer.Typer(
    name="cragline",
    help="Answer files of questions with corrective RAG, with every step recorded in Postgres.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables could show a key
    add_completion=False,
)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"cragline {version('cragline')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Answer files of questions with corrective RAG, with every step recorded in Postgres."""


app.command()(up)
app.command()(down)
app.command()(ingest)
app.add_typer(collection.app, name="collection")
app.command()(submit)
app.add_typer(batch.app, name="batch")
app.command("results")(batch.results)
batch.app.command("diff")(compare.diff)
app.command("what-if")(compare.what_if)
app.command()(export)
app.add_typer(runs.app, name="run")
app.command("sql")(sql.sql)
app.command("graph")(inprocess.graph)
app.command("ask")(inprocess.ask)
app.command()(retention)
app.command()(doctor)
app.add_typer(key.app, name="key")
app.add_typer(db.app, name="db")


def main() -> None:
    """Run the command; every expected error becomes one line and an exit code."""
    _speak_utf8()
    try:
        sys.exit(app(prog_name="cragline", standalone_mode=False))
    except CraglineError as error:
        _end(str(error), error.exit_code)
    except TyperException as error:
        _end_of_wrong_usage(error)
    except OperationalError:
        _end(
            "The database does not answer. `cragline doctor` looks what is wrong; `cragline up -d` starts the stack.",
            1,
        )
    except ProgrammingError as error:
        if "UndefinedTable" in type(error.orig).__name__:
            _end("The database has no tables yet. `cragline db upgrade` makes them.", 1)
        _end(redact(str(error.orig)), 1)
    except DBAPIError as error:
        _end(f"The database refused: {redact(str(error.orig))}", 1)
    except BrokenPipeError:
        # The reader (head, less) has gone; nobody is there to be told.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that may not be written
        if error.strerror is None:
            raise
        _end(f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}.", 1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)


def _speak_utf8() -> None:
    """Questions come in every script: a file or pipe gets UTF-8, and a terminal that cannot show a
    character gets a stand-in, instead of an error in the middle of the output."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and "utf" not in stream.encoding.lower():
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")


def _end_of_wrong_usage(error: TyperException) -> None:
    """One line as for every other error, instead of a box over half the screen."""
    message = one_line(error.format_message()).replace(": Value error, ", ": ")
    if not message:  # no command was named: the help has been printed already
        sys.exit(error.exit_code)
    context = getattr(error, "ctx", None)
    where = f" See `{context.command_path} --help`." if context is not None else ""
    _end(f"{message}{'' if message.endswith(('.', '?')) else '.'}{where}", error.exit_code)


def _end(message: str, code: int) -> None:
    Console(stderr=True, soft_wrap=True).print(
        printable(f"Error: {message}"), style="bold red", markup=False, highlight=False
    )
    sys.exit(code)


if __name__ == "__main__":
    main()
