"""The schema `history`: documented views and functions over the tables, and the role that may read them.

The views hold no data, so they are no part of the chain of migrations. They are taken away before the chain
runs and made anew from `migrations/history/*.sql` after it. A migration may therefore drop, change or remake
any table or view of `public` without a thought for them; where it changes a name that they use, the file
that uses it is edited in the same commit. Unlike the files in `migrations/views/`, these are edited freely:
they are only ever run against the newest tables.

A file makes one view or function. Its first comment becomes the comment of the object, and the comment
behind a column becomes the comment of that column. Files are run in the order of their names.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import structlog
from psycopg import sql
from sqlalchemy import Connection

SCHEMA = "history"
READER = "cragline_reader"
FILES = Path(__file__).resolve().parent / "history"
_ABOUT = (
    "What happened, for people who ask in SQL. Made by `cragline db upgrade`: put nothing of your own here."
)
_MADE = re.compile(r"^CREATE (VIEW|FUNCTION) history\.(\w+)", re.MULTILINE)
_HEAD = re.compile(r"\A(?:-- .*\n)+")
_COLUMN = re.compile(r"^(?!--).*?(\w+),?[ ]+-- (.+)$", re.MULTILINE)

log = structlog.get_logger()


@dataclass(frozen=True)
class Made:
    """One file: the object it makes, and what it says about it."""

    kind: str  # VIEW or FUNCTION
    name: str
    about: str
    columns: dict[str, str]
    statement: str


def files() -> Iterator[Made]:
    """Every object of the schema, in the order in which they are made."""
    for path in sorted(FILES.glob("*.sql")):
        yield read(path.read_text(encoding="utf-8"))


def read(text: str) -> Made:
    """The parts of one file."""
    (made,) = _MADE.finditer(text)
    head = _HEAD.match(text)
    assert head is not None, f"history.{made[2]} begins with a comment"
    lines = [line.removeprefix("-- ") for line in head[0].splitlines()]
    columns = dict(_COLUMN.findall(text[head.end() :]))
    return Made(made[1], made[2], " ".join(lines), columns, text)


def fingerprint() -> str:
    """What tells one release's views from another's."""
    digest = sha256(Path(__file__).read_bytes())
    for path in sorted(FILES.glob("*.sql")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def is_current(connection: Connection) -> bool:
    """Whether the schema is there and was made from these files."""
    said = _driver(connection).execute(
        "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", (SCHEMA,)
    )
    row = said.fetchone()
    return row is not None and str(row[0]).endswith(f"[{fingerprint()}]")


def drop(connection: Connection) -> None:
    """Take the views and functions away; the schema, and what people were granted on it, stays.

    Raises psycopg.errors.DependentObjectsStillExist, naming it, when a view of somebody's own stands on one.
    """
    driver = _driver(connection)
    if driver.execute("SELECT to_regnamespace(%s) IS NULL", (SCHEMA,)).fetchone()[0]:  # type: ignore[index]
        return
    driver.execute("COMMENT ON SCHEMA history IS 'to be made anew: cragline db upgrade'")
    views = driver.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'v'", (SCHEMA,)
    ).fetchall()
    if views:
        driver.execute(sql.SQL("DROP VIEW {}").format(_names(views)))
    functions = driver.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = to_regnamespace(%s)", (SCHEMA,)
    ).fetchall()
    for (signature,) in functions:
        driver.execute("DROP FUNCTION " + signature)  # as Postgres itself quotes it


def make(connection: Connection) -> None:
    """Make every view and function, with its comments, and let the reader read."""
    driver = _driver(connection)
    for made in files():
        driver.execute(made.statement)
        _comment(driver, made)
    driver.execute(
        sql.SQL("COMMENT ON SCHEMA {} IS {}").format(
            sql.Identifier(SCHEMA), sql.Literal(f"{_ABOUT} [{fingerprint()}]")
        )
    )


def _comment(driver: "psycopg.Connection[Any]", made: Made) -> None:
    name = sql.Identifier(SCHEMA, made.name)
    comment = sql.SQL("COMMENT ON " + made.kind + " {} IS {}")
    driver.execute(comment.format(name, sql.Literal(made.about)))
    if made.kind == "VIEW":
        shown = driver.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(name))
        for column in shown.description or ():
            if said := made.columns.get(column.name):
                target = sql.Identifier(SCHEMA, made.name, column.name)
                driver.execute(sql.SQL("COMMENT ON COLUMN {} IS {}").format(target, sql.Literal(said)))


def let_read(connection: Connection) -> None:
    """Make the role that reads the schema and nothing else, where this login may; else say what an admin does.

    The role belongs to the whole server, so it outlives a downgrade: another database may use it.
    """
    driver = _driver(connection)
    if not _has_reader(driver):
        try:
            with driver.transaction():
                driver.execute(f"CREATE ROLE {READER} NOLOGIN")
        except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            pass  # another database of this server was quicker
        except psycopg.errors.InsufficientPrivilege:
            log.warning(
                f"this login may not create roles, so there is no {READER}: `cragline sql` runs as the login itself",
                remedy=f'as an admin: CREATE ROLE {READER} NOLOGIN; GRANT {READER} TO "<login>"; '
                "then `cragline db upgrade` once more",
            )
            return
    # from 16 on, whoever makes a role is its member without being able to take it
    takes = "SELECT pg_has_role(%s, CASE WHEN %s >= 160000 THEN 'SET' ELSE 'MEMBER' END)"
    if driver.execute(takes, (READER, driver.info.server_version)).fetchone() != (True,):
        try:
            with driver.transaction():
                driver.execute(f"GRANT {READER} TO CURRENT_USER")
        except psycopg.errors.InsufficientPrivilege:
            log.warning(
                f'`cragline sql` cannot run as {READER} until an admin does: GRANT {READER} TO "<login>"'
            )
    driver.execute(f"GRANT USAGE ON SCHEMA history TO {READER}")
    driver.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA history TO {READER}")


def _has_reader(driver: "psycopg.Connection[Any]") -> bool:
    return driver.execute("SELECT FROM pg_roles WHERE rolname = %s", (READER,)).fetchone() is not None


def _names(rows: "list[tuple[Any, ...]]") -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(SCHEMA, name) for (name,) in rows)


def _driver(connection: Connection) -> "psycopg.Connection[Any]":
    """The driver's own connection: the files hold `%` and `:` that SQLAlchemy would take for parameters."""
    driver = connection.connection.driver_connection
    assert driver is not None
    return driver  # type: ignore[no-any-return]
