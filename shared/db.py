"""One engine a process, one session helper that commits; business code never does."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from psycopg import DataError
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.datetime import IntervalLoader
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from shared.errors import CraglineError
from shared.settings import Settings, get_settings


def sqlalchemy_url(url: str) -> URL:
    """A `postgresql://` URL as psql takes it, for SQLAlchemy on psycopg 3."""
    try:
        parsed = make_url(url)
    except Exception:  # noqa: BLE001 - whatever the parser says could quote the password
        raise CraglineError(
            "The database URL cannot be read; it should look like postgresql://user:password@host:5432/name."
        ) from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise CraglineError(
            f"The database must be Postgres (postgresql://...), not {parsed.get_backend_name()}://."
        )
    return parsed.set(drivername="postgresql+psycopg")


def database_url(settings: Settings) -> str:
    """The database in use: the one that is set, or the running embedded one."""
    from shared.stack.state import part_url  # the stack itself uses this module for its migrations

    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    return part_url(settings, "postgres")


_CONNECT = {
    "application_name": "cragline",
    "connect_timeout": 10,
    # A server that has vanished (its host is gone, the network is cut) sends no goodbye; without these its
    # connections would be waited on for a quarter of an hour or two, and with them threads and heartbeats.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds; Linux only, and ignored elsewhere
}


def make_engine(url: str, *, pool_size: int = 5) -> Engine:
    engine = create_engine(
        sqlalchemy_url(url),
        pool_size=pool_size,
        max_overflow=pool_size + 2,
        pool_pre_ping=True,  # a restarted Postgres must not fail the first query of each pooled connection
        connect_args=_CONNECT,
    )
    event.listen(engine, "connect", _read_every_time)
    return engine


_TIMES = ("date", "time", "timetz", "timestamp", "timestamptz", "interval")


def _read_every_time(connection: Any, _record: object) -> None:
    """Let times that Python has no value for (infinity, before year 1, after 9999, 24:00) be read as
    Postgres's own words, instead of failing the whole query."""
    for name in _TIMES:
        oid = connection.adapters.types[name].oid
        usual = connection.adapters.get_loader(oid, Format.TEXT)
        if name == "interval":  # the one in C lets a long interval overflow into a wrong one
            usual = IntervalLoader
        connection.adapters.register_loader(oid, _or_text(usual))


def _or_text(usual: type[Loader]) -> type[Loader]:
    class OrText(Loader):
        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._usual = usual(oid, context)

        def load(self, data: Buffer) -> Any:
            text = bytes(data).decode()
            if text.endswith("infinity"):  # as an interval it would be read as none at all
                return text
            try:
                return self._usual.load(data)
            except (DataError, OverflowError, NotImplementedError):  # the last: another IntervalStyle
                return text

    return OrText


@lru_cache(maxsize=1)
def get_engine() -> Engine:
    """The process's engine. Only after a fork or in tests is `get_engine.cache_clear()` of use."""
    settings = get_settings()
    return make_engine(database_url(settings), pool_size=settings.worker_threads)


@contextmanager
def transaction(engine: Engine | None = None) -> Iterator[Session]:
    """A session whose work is committed at the end of the block, or rolled back by an exception."""
    with Session(engine or get_engine(), expire_on_commit=False) as session, session.begin():
        yield session


AWAY = (OperationalError, InterfaceError, PoolTimeout)
PATIENCE = 300.0  # seconds that Postgres may be away until what is done, and perhaps paid, is given up
_PAUSE = 0.5  # seconds between two tries


def commit_patiently(engine: Engine, work: Callable[[Session, bool], None]) -> None:
    """`work` in a transaction, tried again while the database is away, for `PATIENCE` seconds.

    `work` is told whether it is tried again: a connection may be cut between the commit and its answer, so it
    then has to look whether all is there already. (Postgres' own word on a transaction, `pg_xact_status`, does
    not outlive a crash: numbers that were not yet on disk are given out anew.) Raises what the last try raised.
    """
    deadline = time.monotonic() + PATIENCE
    again = False
    while True:
        try:
            with transaction(engine) as session:
                work(session, again)
            return
        except AWAY:
            if time.monotonic() + _PAUSE > deadline:
                raise
        again = True
        time.sleep(_PAUSE)


def read_rows(engine: Engine, query: str, **values: Any) -> list[dict[str, Any]]:
    """What a query brings, a dict a row, by the names of its columns."""
    with transaction(engine) as session:
        return [dict(row._mapping) for row in session.execute(text(query), values)]
