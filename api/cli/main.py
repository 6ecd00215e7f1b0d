"""The `cragline` command. Each command is a function in its own module; this one only gathers them."""

import os
import sys

import typer
from rich.console import Console
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from api.cli import batch, db, inprocess, runs, sql
from api.cli.doctor import doctor
from api.cli.ingest import ingest
from api.cli.submit import submit
from api.cli.up import down, up
from shared.errors import CraglineError
from shared.logs import redact

app = typer.Typer(
    name="cragline",
    help="Answer files of questions with corrective RAG, with every step recorded in Postgres.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables could show a key
    add_completion=False,
)
app.command()(up)
app.command()(down)
app.command()(ingest)
app.command()(submit)
app.add_typer(batch.app, name="batch")
app.command("results")(batch.results)
app.add_typer(runs.app, name="run")
app.command("sql")(sql.sql)
app.command("graph")(inprocess.graph)
app.command("ask")(inprocess.ask)
app.command()(doctor)
app.add_typer(db.app, name="db")


def main() -> None:
    """Run the command; every expected error becomes one line and an exit code."""
    try:
        app()
    except CraglineError as error:
        _end(str(error), error.exit_code)
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
    except KeyboardInterrupt:
        sys.exit(130)


def _end(message: str, code: int) -> None:
    Console(stderr=True, soft_wrap=True).print(
        f"Error: {message}", style="bold red", markup=False, highlight=False
    )
    sys.exit(code)


if __name__ == "__main__":
    main()
