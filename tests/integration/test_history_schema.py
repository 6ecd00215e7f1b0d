"""The schema `history`: every name explained, readable by the reader alone, and in no migration's way."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, text

from migrations import history_schema
from shared import history, migrate
from shared.stack.testing import Servers
from tests.conftest import drop_database, make_database, own_database
from tests.integration.cluster import read_rows


@pytest.fixture(scope="module")
def untouched(servers: Servers) -> Iterator[Engine]:
    """One database for the tests that only look."""
    with own_database(servers) as engine:
        yield engine


VIEWS = """
SELECT relname::text AS name, obj_description(oid, 'pg_class') AS about FROM pg_class
 WHERE relnamespace = 'history'::regnamespace AND relkind = 'v' ORDER BY 1
"""
COLUMNS = """
SELECT relname || '.' || attname AS name, col_description(pg_class.oid, attnum) AS about
  FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0
 WHERE relnamespace = 'history'::regnamespace AND relkind = 'v'
"""
FUNCTIONS = """
SELECT proname::text AS name, obj_description(oid, 'pg_proc') AS about FROM pg_proc
 WHERE pronamespace = 'history'::regnamespace
"""


@pytest.mark.parametrize(("query", "least"), [(VIEWS, 20), (COLUMNS, 200), (FUNCTIONS, 5)])
def test_everything_has_a_comment(untouched: Engine, query: str, least: int) -> None:
    found = read_rows(untouched, query)
    assert len(found) >= least
    assert [row.name for row in found if not row.about or len(row.about) < 3] == []
    assert [row.name for row in found if row.about != row.about.strip()] == []


def test_a_comment_belongs_to_its_column(untouched: Engine) -> None:
    said = {row.name: row.about for row in read_rows(untouched, COLUMNS)}
    assert said["runs.run_id"] == "the run's number"
    assert said["collections.aliases"] == "its other names"
    assert said["loop_economics.changed_verdict"].startswith("whether a bad verdict became a good one")


# Columns that say nothing to a person who asks, or that strangers must not read.
INTERNAL = {
    "batches": {"callback_url"},  # may hold a password
    "runs": {"inherited", "reuse_key", "collection_version"},
    "transitions": {"recorded_in"},
    "claims": {
        "width",
        "argument",
        "came_from",
        "goes_to",
        "publishes",
        "wake_at",
        "task_id",
        "failing_since",
    },
    "model_calls": {"reuse_key"},
    "web_searches": {"reuse_key"},
    "retrievals": {"reuse_key", "request_hash"},
    "ingest_files": {"options", "touched_at"},
    "documents": {"id"},
    "collection_aliases": {"set_at"},
}
UNSEEN = """
SELECT relname::text AS name, array_agg(attname::text) FILTER (WHERE NOT seen) AS columns
  FROM (SELECT relname, attname, EXISTS (
               SELECT FROM pg_depend JOIN pg_rewrite ON pg_rewrite.oid = objid JOIN pg_class AS v ON v.oid = ev_class
                WHERE v.relnamespace = 'history'::regnamespace AND refobjid = pg_class.oid AND refobjsubid = attnum)
               AS seen
          FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
         WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition) AS found
 GROUP BY relname HAVING bool_or(seen) AND NOT bool_and(seen)
"""


def test_a_new_column_is_shown_or_said_to_be_internal(untouched: Engine) -> None:
    """Of tables that the schema shows at all."""
    left_out = {
        row.name: set(row.columns) - INTERNAL.get(row.name, set()) for row in read_rows(untouched, UNSEEN)
    }
    assert {name: columns for name, columns in left_out.items() if columns} == {}, (
        "add it to migrations/history/, or to INTERNAL above"
    )


def test_every_file_makes_what_it_is_called() -> None:
    for path in sorted(history_schema.FILES.glob("*.sql")):
        made = history_schema.read(path.read_text(encoding="utf-8"))
        assert path.stem.partition("_")[2] == made.name


def test_the_reader_reads_the_schema_and_nothing_else(untouched: Engine) -> None:
    for row in read_rows(untouched, VIEWS):
        history.query(untouched, f"SELECT * FROM {row.name}")
    granted = read_rows(
        untouched,
        "SELECT relnamespace::regnamespace::text || '.' || relname AS name FROM pg_class"
        " WHERE relkind IN ('r', 'v', 'm', 'p', 'S') AND relnamespace = 'public'::regnamespace"
        f" AND has_table_privilege('{history.READER}', oid, 'SELECT, INSERT, UPDATE, DELETE')",
    )
    assert granted == []
    writable = read_rows(
        untouched,
        "SELECT relname FROM pg_class WHERE relnamespace = 'history'::regnamespace AND relkind = 'v'"
        f" AND has_table_privilege('{history.READER}', oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')",
    )
    assert writable == []
    assert history.READER == history_schema.READER


def test_a_login_that_may_not_make_roles_is_told_and_goes_on(
    database: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(history_schema, "READER", "cragline_of_nobody")
    with database.begin() as connection:
        history_schema.let_read(connection)
        assert connection.scalar(text("SELECT count(*) FROM history.runs")) == 0
    assert "CREATE ROLE cragline_of_nobody NOLOGIN" in capsys.readouterr().out


def test_an_upgrade_with_nothing_to_do_leaves_the_views_alone(untouched: Engine) -> None:
    before = _oids(untouched)
    migrate.upgrade(_url(untouched))
    assert _oids(untouched) == before != []


def test_views_of_an_older_release_are_made_anew(database: Engine) -> None:
    _execute(
        database, "COMMENT ON SCHEMA history IS 'Older. [0123456789abcdef]'", "DROP VIEW history.prompts"
    )
    before = _oids(database)
    migrate.upgrade(_url(database))
    assert not set(_oids(database)) & set(before)
    assert len(_oids(database)) == len(before) + 1


def test_a_migration_may_remake_what_the_views_stand_on(database: Engine) -> None:
    """What a later migration does: the views are gone before it runs, and stand on the new ones after it."""
    with database.begin() as connection:
        history_schema.drop(connection)
    definition = read_rows(database, "SELECT pg_get_viewdef('public.batch_progress'::regclass) AS sql")[0].sql
    _execute(
        database,
        "DROP VIEW public.batch_progress",
        "CREATE VIEW public.batch_progress AS SELECT 'v2' AS version, old.* FROM ("
        + definition.rstrip(";")
        + ") AS old",
        "ALTER TABLE public.prompts ALTER COLUMN text TYPE varchar",
    )
    with database.begin() as connection:
        assert not history_schema.is_current(connection)
        history_schema.make(connection)
        history_schema.let_read(connection)
    assert history.query(database, "SELECT batch_id, eta_seconds FROM batch_progress").rows == []


def test_a_downgrade_takes_them_and_an_upgrade_brings_them_back(servers: Servers) -> None:
    name, url = make_database(servers)
    try:
        migrate.downgrade(url, "0001_main_job")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regnamespace('history')").fetchone() == (None,)
        migrate.upgrade(url)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM history.runs").fetchone() == (0,)
    finally:
        drop_database(servers, name)


def test_a_view_of_somebodys_own_is_never_dropped(database: Engine) -> None:
    _execute(database, "CREATE VIEW public.mine AS SELECT run_id FROM history.runs")
    with (
        pytest.raises(psycopg.errors.DependentObjectsStillExist, match="history"),
        database.begin() as connection,
    ):
        history_schema.drop(connection)
    assert read_rows(database, "SELECT * FROM public.mine") == []


def test_a_file_says_what_its_object_and_columns_are() -> None:
    made = history_schema.read("-- About it.\nCREATE VIEW history.x AS\nSELECT 1 AS one -- a one\n;")
    assert (made.about, made.columns) == ("About it.", {"one": "a one"})


def _oids(engine: Engine) -> list[int]:
    found = read_rows(
        engine,
        "SELECT oid FROM pg_class WHERE relnamespace = 'history'::regnamespace AND relkind = 'v' ORDER BY 1",
    )
    return [row.oid for row in found]


def _url(engine: Engine) -> str:
    return engine.url.set(drivername="postgresql").render_as_string(hide_password=False)


def _execute(engine: Engine, *statements: str, **values: Any) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement), values)
