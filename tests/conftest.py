"""Fixtures for tests that need real servers: one embedded Postgres and Valkey for the whole session."""

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from redis import Redis
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from shared.db import make_engine
from shared.migrate import upgrade
from shared.stack.testing import Servers, embedded_servers

ROOT = Path(__file__).parent
settings.register_profile("chaos")  # `make chaos`: the property tests that know it try many more ways
_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What shares costly servers stays in one process when tests run side by side: the end-to-end tests
    have one stack, and each module of the integration tests has its cluster. Unit tests go anywhere."""
    for item in items:
        parts = item.path.relative_to(ROOT).parts
        if parts[0] == "e2e":
            item.add_marker(pytest.mark.xdist_group("e2e"))
        elif parts[0] != "unit":
            item.add_marker(pytest.mark.xdist_group("/".join(parts)))


@pytest.fixture(scope="session", autouse=True)
def _no_settings_from_outside() -> Iterator[None]:
    """A developer's own keys and URLs must not decide, or pay for, what the tests do."""
    patch = pytest.MonkeyPatch()
    for name in list(os.environ):
        if name.startswith(("CRAGLINE_", "OPENAI_", "TAVILY_", "FLOWER_")) and name != "CRAGLINE_TEST_DATA":
            patch.delenv(name)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Postgres with a migrated database that is only a template, and Valkey."""
    with tempfile.TemporaryDirectory(prefix="cragline-test-") as folder:
        os.chmod(folder, 0o755)
        with embedded_servers(Path(folder) / "home") as running:
            upgrade(running.database_url)
            yield running


def make_database(servers: Servers) -> tuple[str, str]:
    """A new migrated database: its name and URL."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _admin(servers, f"CREATE DATABASE {name} TEMPLATE cragline")
    return name, servers.database_url.rsplit("/", 1)[0] + f"/{name}"


def drop_database(servers: Servers, name: str) -> None:
    """Our own connections are ended first. Not WITH (FORCE): that would also want to end an autovacuum
    worker, which this login may not; a plain DROP asks it to leave."""
    ours = f"datname = '{name}' AND usename = current_user AND pid <> pg_backend_pid()"
    for left in reversed(range(5)):
        _admin(servers, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        try:
            _admin(servers, f"DROP DATABASE {name}")
            return
        except OperationalError:  # a process that is just ending has connected once more
            if not left:
                raise
            time.sleep(0.5)


def _admin(servers: Servers, statement: str) -> None:
    engine = make_engine(servers.database_url.rsplit("/", 1)[0] + "/postgres", pool_size=1)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(statement))
    engine.dispose()


@contextmanager
def own_database(servers: Servers) -> Iterator[Engine]:
    """An engine on a migrated, empty database, which goes with the end of the block."""
    name, url = make_database(servers)
    engine = make_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()
        drop_database(servers, name)


@pytest.fixture
def database(servers: Servers) -> Iterator[Engine]:
    """An engine on a migrated, empty database of its own."""
    with own_database(servers) as engine:
        yield engine


@pytest.fixture
def redis(servers: Servers) -> Iterator[Redis]:
    """A client of the emptied Valkey."""
    with Redis.from_url(servers.redis_url) as client:
        client.flushall()
        yield client
