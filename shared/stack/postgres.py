"""The Postgres part: made on first use, reached by TCP on 127.0.0.1 with a password."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from shared.errors import StackError
from shared.stack.postgres_user import PostgresPlace, find_place
from shared.stack.process import HOST, Part, command_of, process_mark, stop_stranger
from shared.stack.state import logs_path

NAME = USER = DATABASE = "cragline"
READER = "cragline_reader"  # as migrations/history_schema.py calls it
SUPERUSER = "postgres"  # only makes the login and the database; nothing else ever uses it
# Fast shutdown, then immediate shutdown (which recovers at the next start), then none of it.
STOPS = ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 5.0))
_ENV = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}  # no key of the user's gets near the server

_OPTIONS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",  # a socket would need a folder that every user can reach
    "max_connections": "200",
    "shared_buffers": "256MB",
    "synchronous_commit": "on",
    "log_min_messages": "warning",
    "log_error_verbosity": "terse",  # the DETAIL of a failed row would quote a question into the log
    "log_line_prefix": "%m [%p] ",
    "jit": "off",
    "timezone": "UTC",
}
_FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


def postgres_url(port: int, password: str) -> str:
    """A URL that psql takes."""
    return f"postgresql://{USER}:{password}@{HOST}:{port}/{DATABASE}"


def postgres_part(
    home: Path,
    password: str,
    port: int,
    *,
    fsync: bool = True,
    say: Callable[[str], None] = lambda message: None,
) -> Part:
    """The part, with its data folder made if need be, and no other server on it.

    `fsync=False` is for tests: a crash of the machine may damage the data. Raises StackError.
    """
    place = find_place(home)
    clear_leftover(place, say)
    if not (place.data / "PG_VERSION").exists():
        say("creating the database folder")
        _make_data(place, password, sync=fsync)
    options = _OPTIONS | {"port": str(port)} | ({} if fsync else _FAST)
    flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    return Part(
        name="postgres",
        command=[place.binary("postgres"), "-D", str(place.data), *flags],
        env=_ENV,
        log=logs_path(home) / "postgres.log",
        cwd=Path("/"),
        ready=lambda: _ready(home, port, password),
        url=postgres_url(port, password),
        address=f"{HOST}:{port}",
        stops=STOPS,
        run_as=place.run_as,
        before_launch=lambda: clear_leftover(place, say),
    )


def _make_data(place: PostgresPlace, password: str, *, sync: bool) -> None:
    """Run initdb beside the final place, so that one that was cut off leaves nothing that looks whole.

    Collation and character classes come from Postgres itself (its C.UTF-8), not from the system's libc:
    an upgrade of the system cannot silently change an index's order.
    """
    work = Path(tempfile.mkdtemp(dir=place.folder, prefix="new-"))
    password_file = work / "password"
    try:
        password_file.touch(mode=0o600)
        password_file.write_text(password, encoding="ascii")
        if place.run_as:
            for path in (work, password_file):
                os.chown(path, place.run_as["user"], place.run_as["group"])
        command = [place.binary("initdb"), "-D", str(work / "data"), "-U", SUPERUSER, "-E", "UTF8"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command += ["-A", "scram-sha-256", f"--pwfile={password_file}", *([] if sync else ["--no-sync"])]
        made = subprocess.run(
            command,
            env=_ENV,
            cwd="/",
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            **place.run_as,
        )
        if made.returncode != 0:
            raise StackError(
                f"The database folder could not be made in {place.folder}: {made.stderr.strip()[-2000:]}"
            )
        (work / "data").rename(place.data)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _ready(home: Path, port: int, password: str) -> bool:
    """Whether the server answers; makes the application's login and database on the way.

    The application is no superuser: a query of `cragline sql` must not be able to run a program.
    Raises StackError when the server refuses the password: waiting would not help.
    """
    try:
        with psycopg.connect(
            host=HOST,
            port=port,
            user=SUPERUSER,
            password=password,
            dbname="postgres",
            connect_timeout=3,
            autocommit=True,
        ) as connection:
            _make_login(connection, password)
            _make_reader(connection)
            _make_database(connection)
            return True
    except psycopg.OperationalError as error:
        if "password authentication failed" in str(error):
            raise StackError(
                f"{home / 'secrets.json'} does not hold the password with which the database in "
                f"{home / 'postgres'} was made. Restore that file; removing {home / 'postgres'} "
                "(or the folder it links to) gives up the history and begins with an empty database."
            ) from None
        return False
    except psycopg.Error:
        return False


def _make_reader(connection: "psycopg.Connection[Any]") -> None:
    """The group that may read the schema `history`: our login is in it, but may not make roles itself."""
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (READER,)).fetchone() is None:
        connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(READER)))
    connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(READER), sql.Identifier(USER)))


def _make_login(connection: "psycopg.Connection[Any]", password: str) -> None:
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (USER,)).fetchone() is not None:
        return
    # hashed here, so that no log of a failing statement could hold the password
    verifier = connection.pgconn.encrypt_password(password.encode(), USER.encode(), b"scram-sha-256").decode()
    connection.execute(
        sql.SQL("CREATE ROLE {} LOGIN CREATEDB PASSWORD {}").format(
            sql.Identifier(USER), sql.Literal(verifier)
        )
    )


def _make_database(connection: "psycopg.Connection[Any]") -> None:
    if connection.execute("SELECT FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone() is None:
        connection.execute(
            sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(USER))
        )


def clear_leftover(place: PostgresPlace, say: Callable[[str], None] = lambda message: None) -> None:
    """Stop a server that an earlier supervisor left on this data folder, or remove its stale pid file.

    A pid file whose process is gone is left to Postgres, which also looks for surviving backends. It is
    removed here only when the process id now belongs to something else, which Postgres cannot tell apart.
    """
    pid_file = place.data / "postmaster.pid"
    with contextlib.suppress(OSError, ValueError, IndexError):
        pid = int(pid_file.read_text(encoding="utf-8", errors="replace").splitlines()[0])
        mark = process_mark(pid)
        if mark is None:
            return
        if _serves(pid, place.data):
            say(f"stopping a server left from an earlier stack (pid {pid})")
            stop_stranger(pid, mark, STOPS)
        else:
            pid_file.unlink()


def _serves(pid: int, data: Path) -> bool:
    """Whether a process is a Postgres server on this data folder."""
    command = command_of(pid)
    return "postgres" in command and str(data) in command
