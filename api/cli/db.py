"""`cragline db`: the schema's version."""

import typer
from rich.console import Console

from shared.db import database_url, get_engine
from shared.settings import get_settings

app = typer.Typer(help="The database schema.", no_args_is_help=True)


@app.command()
def upgrade() -> None:
    """Bring the schema to this version's."""
    from shared.migrate import current_revision
    from shared.migrate import upgrade as run_upgrade

    before = current_revision(get_engine())
    run_upgrade(database_url(get_settings()))
    after = current_revision(get_engine())
    Console().print(f"The schema is at {after}" + (" already." if before == after else f" (was: {before})."))


@app.command()
def current() -> None:
    """Print the schema's revision. Exit code 1 when it is not this version's."""
    from shared.migrate import current_revision, head_revision

    found, head = current_revision(get_engine()), head_revision()
    if found == head:
        Console().print(f"{found} (head)")
        return
    Console().print(f"{found or 'no tables'}; this version wants {head}: `cragline db upgrade`.")
    raise typer.Exit(1)
