"""`history.query`: read-only, whatever it is asked."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from shared import history
from shared.errors import CraglineError
from shared.stack.testing import Servers
from tests.conftest import own_database


@pytest.fixture(scope="module")
def database(servers: Servers) -> Iterator[Engine]:
    """One for all of these tests: none of them can change it."""
    with own_database(servers) as engine:
        yield engine


@pytest.mark.parametrize(
    "statement",
    [
        "DO $$ BEGIN EXECUTE 'reset role'; EXECUTE 'copy (select 1) to program ''true'''; END $$",
        "RESET ROLE",
        "SET transaction_read_only = off",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "CALL something()",
        "-- a comment\nDELETE FROM runs",
        "/* select */ DELETE FROM runs",
        "SELECT 1; DELETE FROM runs",
        "WITH gone AS (DELETE FROM runs RETURNING id) SELECT * FROM gone",
        "SELECT set_config('transaction_read_only', 'off', true), nextval('runs_id_seq')",
        "EXPLAIN ANALYZE DELETE FROM runs",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT rolpassword FROM pg_authid",
        "SELECT query_to_xml('delete from runs', true, true, '')",
        "SELECT set_config('role', 'none', true)",
        """SELECT U&"set\\005fconfig"('role', 'none', true)""",
        "SELECT * FROM public.runs",
        "SELECT query_to_xml('select * from public.batches', true, true, '')",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'cragline'",
        "SELECT lo_create(0)",
        "SELECT pg_notify('x', 'y'), nextval('public.runs_id_seq')",
        "SELECT 1 \0 what the server would never see",
        "SELECT '\udcff'",  # as a terminal in Latin-1 hands it over
    ],
)
def test_nothing_but_reading(database: Engine, statement: str) -> None:
    with pytest.raises(CraglineError):
        history.query(database, statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 AS one",
        "  -- why\n  select 1 as one;",
        "/* so */ (SELECT 1 AS one)",
        "WITH x AS (SELECT 1 AS one) TABLE x",
        "VALUES (1)",
    ],
)
def test_queries_are_answered(database: Engine, statement: str) -> None:
    assert history.query(database, statement).rows == [(1,)]


def test_a_query_reads_as_the_reader_and_only_for_a_while(database: Engine) -> None:
    assert history.query(database, "SELECT current_user, current_schema").rows == [
        (history.READER, "history")
    ]
    with pytest.raises(CraglineError, match=r"longer than 0\.2 seconds"):
        history.query(database, "SELECT pg_sleep(20)", timeout=0.2)


def test_what_a_query_leaves_in_its_session_ends_with_it(database: Engine) -> None:
    history.query(database, "SELECT pg_advisory_lock(42)")
    assert (
        history.query(database, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 42").rows
        == []
    )
    assert history.query(database, "SHOW statement_timeout", timeout=7).rows == [("7s",)]


def test_without_the_role_the_login_itself_reads(database: Engine) -> None:
    found = history.query(
        database, "SELECT current_user, count(*) FROM runs GROUP BY 1", reader="nobody_there"
    )
    assert found.rows == []
    assert history.query(database, "SELECT current_user", reader="nobody_there").rows == [("cragline",)]
    with pytest.raises(CraglineError, match="read-only"):
        history.query(database, "SELECT nextval('public.runs_id_seq')", reader="nobody_there")


def test_the_embedded_login_is_no_superuser(database: Engine) -> None:
    found = history.query(
        database, "SELECT rolsuper, rolcreaterole, rolreplication FROM pg_roles WHERE rolname = current_user"
    )
    assert found.rows == [(False, False, False)]
