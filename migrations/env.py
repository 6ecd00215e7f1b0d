"""Alembic's entry: one engine (given by shared.migrate), one transaction for each migration."""

from alembic import context
from sqlalchemy import Connection, Engine, text

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


def main() -> None:
    engine: Engine = context.config.attributes.get("engine") or make_engine(
        database_url(get_settings()), pool_size=1
    )
    with engine.connect() as lock:
        lock.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
        lock.commit()
        with engine.connect() as connection:
            run(connection)
        lock.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": MIGRATION_LOCK})
        lock.commit()


main()
