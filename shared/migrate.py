"""Run Alembic from code, with the project's own migrations and an explicit URL."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from shared.db import make_engine

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"


def config(engine: Engine | None = None, target: str | None = None) -> Config:
    """An Alembic config that needs no ini file. The engine travels as an attribute, not as text, so that
    no URL with a password is printed or interpolated. `target` is where an upgrade or downgrade goes to."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS))
    made.set_main_option("file_template", "%%(year)d%%(month).2d%%(day).2d_%%(slug)s")
    made.attributes["engine"] = engine
    made.attributes["target"] = target
    return made


def upgrade(database_url: str, revision: str = "head") -> None:
    engine = make_engine(database_url, pool_size=1)
    try:
        command.upgrade(config(engine, revision), revision)
    finally:
        engine.dispose()


def downgrade(database_url: str, revision: str) -> None:
    engine = make_engine(database_url, pool_size=1)
    try:
        command.downgrade(config(engine, revision), revision)
    finally:
        engine.dispose()


def current_revision(engine: Engine) -> str | None:
    """The revision the database is at; None for a database without our tables."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head_revision() -> str:
    head = ScriptDirectory.from_config(config()).get_current_head()
    assert head is not None, "there is at least one migration"
    return head
