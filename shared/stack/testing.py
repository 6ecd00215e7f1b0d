"""Postgres and Valkey alone, without a supervisor: for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shared.stack.postgres import postgres_part
from shared.stack.postgres_user import remove_data
from shared.stack.process import Running, free_port, launch, stop_all, wait_ready
from shared.stack.secrets import ensure_secrets
from shared.stack.valkey import valkey_part


@dataclass(frozen=True)
class Servers:
    """Two running servers; the URLs hold their passwords."""

    home: Path
    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    postgres: Running
    valkey: Running


@contextmanager
def embedded_servers(home: Path, *, fsync: bool = False, keep: bool = False) -> Iterator[Servers]:
    """Run Postgres (with an empty database `cragline`) and Valkey until the end of the block.

    The database is deleted afterwards unless `keep` is set: root's may lie outside of `home`.
    """
    home.mkdir(parents=True, exist_ok=True)
    secrets = ensure_secrets(home)
    port = free_port()
    parts = [
        postgres_part(home, secrets.postgres, port, fsync=fsync),
        valkey_part(home, secrets.valkey, free_port(avoid=[port])),
    ]
    running: list[Running] = []
    try:
        for part in parts:
            running.append(launch(part))
        wait_ready(running)
        yield Servers(home, parts[0].url or "", parts[1].url or "", running[0], running[1])
    finally:
        stop_all(running)
        if not keep:
            remove_data(home)
