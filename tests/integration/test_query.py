"""`history.query`: read-only, whatever it is asked."""

import pytest
from sqlalchemy import Engine

from shared import history
from shared.errors import CraglineError


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


def test_the_embedded_login_is_no_superuser(database: Engine) -> None:
    found = history.query(
        database, "SELECT rolsuper, rolcreaterole, rolreplication FROM pg_roles WHERE rolname = current_user"
    )
    assert found.rows == [(False, False, False)]
