"""Alembic's entry: one engine (given by shared.migrate), one transaction for each migration.

Around an upgrade or a downgrade, the views of the schema `history` are taken away and made anew.
"""

from alembic import context
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, text

from migrations import history_schema
from shared.db import database_url, make_engine
from shared.settings import get_settings
from shared.tables import Base

# Two `up` commands against one database must not migrate it at the same time.
MIGRATION_LOCK = 7226_0001


def include_object(
    _object: object, name: str | None, kind: str, _reflected: bool, _compare_to: object
) -> bool:
    """Monthly partitions are made at run time and belong to no migration."""
    return not (kind in ("table", "index") and name is not None and name.startswith("transitions_p"))


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_object=include_object,
        transaction_per_migration=True,
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def clear_history(engine: Engine, target: str) -> None:
    """No view may stand in the way of a migration. Where none will run, current views stay."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        stays = target == "head" and _at_head(connection) and history_schema.is_current(connection)
        if not stays:
            history_schema.drop(connection)


def make_history(engine: Engine) -> None:
    """The views belong to the newest tables: after a downgrade there are none."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        if not _at_head(connection):
            return
        if not history_schema.is_current(connection):
            history_schema.make(connection)
        history_schema.let_read(connection)


def _at_head(connection: Connection) -> bool:
    found = MigrationContext.configure(connection).get_current_revision()
    return found == context.script.get_current_head()


def main() -> None:
    engine: Engine = context.config.attributes.get("engine") or make_engine(
        database_url(get_settings()), pool_size=1
    )
    with engine.connect() as lock:
        lock.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
        lock.commit()
        target = context.config.attributes.get("target")  # None: nothing is to be changed
        if target is not None:
            clear_history(engine, target)
        with engine.connect() as connection:
            run(connection)
        if target is not None:
            make_history(engine)
        lock.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": MIGRATION_LOCK})
        lock.commit()


main()
