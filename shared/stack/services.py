"""The services of the stack: workers, beat, Flower and the HTTP API.

They are named by text only (`-A workers.celery_app`), because shared code imports
nothing of them.
"""

import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from pydantic import AliasChoices, SecretStr

import shared
from shared.clean import one_line
from shared.errors import StackError
from shared.settings import Settings
from shared.stack.process import HOST, Part, free_port, port_is_free
from shared.stack.state import logs_path

_ROOT = Path(shared.__file__).resolve().parents[1]  # the folder that holds api/, shared/ and workers/
_APP = "workers.celery_app"
_DEFAULT_FLOWER_PORT = 5555
_DEFAULT_API_PORT = 8585
_QUEUES = "retrieval,models,web,control"
_QUEUES_WITHOUT_STORE = "models,web,control"


def child_env(settings: Settings) -> dict[str, str]:
    """The environment of the Celery parts: the caller's, and every setting that was set, by whatever way.

    So the children see what the supervisor sees, although their working directory, and so their `.env`,
    is another. Passwords travel here and never on a command line, which other users can read.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLOWER_")}
    for name in settings.model_fields_set | {"home"}:
        value = getattr(settings, name)
        if value is not None and name in type(settings).model_fields:
            env[_variable(name)] = _as_text(value)
    if _ROOT.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), env.get("PYTHONPATH")]))
    return env


def _variable(field: str) -> str:
    alias = Settings.model_fields[field].validation_alias
    if isinstance(alias, AliasChoices):
        alias = str(alias.choices[0])
    return alias if isinstance(alias, str) else f"CRAGLINE_{field.upper()}"


def _as_text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, (dict, list, bool)):
        return json.dumps(value)
    return str(value)


def celery_command(*words: str) -> list[str]:
    # -P: a folder `workers` or a file `celery.py` where the user happens to stand must not be imported
    return [sys.executable, "-P", "-m", "celery", "-A", _APP, *words]


def check_graphs(settings: Settings, env: Mapping[str, str]) -> None:
    """Raises StackError with the one line that says which graph cannot run, and why.

    Asked before anything is started: a worker would refuse the graph too, but only once the servers run.
    """
    asked = subprocess.run(
        [sys.executable, "-P", "-m", "workers.check"],
        env=dict(env),
        cwd=_run_folder(settings.home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if asked.returncode:
        said = asked.stderr.strip().splitlines()[-1:] or [f"exit code {asked.returncode}"]
        raise StackError(f"The pipelines cannot run: {one_line(said[0], 1000)}")


_reserved: dict[int, TextIO] = {}


def _reserve(port: int) -> bool:
    """Keep other stacks off `port` until this process ends: Flower takes seconds to listen on it, in which
    a second stack would find it free too."""
    if port in _reserved:
        return True
    path = Path(tempfile.gettempdir()) / f"cragline-port-{port}.lock"
    try:
        lock = path.open("a")
    except OSError:  # another user's
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return False
    _reserved[port] = lock
    return True


def choose_flower_port(wanted: int | None) -> int:
    """The port asked for, or the usual one, or a free one. Raises StackError when the first is taken."""
    return _choose_port(wanted, _DEFAULT_FLOWER_PORT, "--flower-port", avoid=[])


def choose_api_port(wanted: int | None, avoid: Sequence[int]) -> int:
    """As for Flower, and never one of `avoid`."""
    return _choose_port(wanted, _DEFAULT_API_PORT, "--api-port", avoid)


def _choose_port(wanted: int | None, usual: int, option: str, avoid: Sequence[int]) -> int:
    if wanted is None:
        is_ours = usual not in avoid and port_is_free(usual) and _reserve(usual)
        return usual if is_ours else free_port(avoid=avoid)
    if wanted in avoid or not (port_is_free(wanted) and _reserve(wanted)):
        raise StackError(
            f"Port {wanted} on {HOST} is taken (or not allowed). "
            f"Choose another with {option}, or leave the option out to get a free one."
        )
    return wanted


def worker_part(settings: Settings, number: int, env: Mapping[str, str], ping: Callable[[str], bool]) -> Part:
    """Worker `number`, counted from 1. `ping` tells whether the worker of a node name answers."""
    name = f"worker-{number}"
    # The local vector store can be open in one process only, and the queue `retrieval` says which.
    queues = _QUEUES if number == 1 or settings.qdrant_url else _QUEUES_WITHOUT_STORE
    command = celery_command("worker", "-n", f"{name}@%h", "--pool", "threads")
    command += ["--concurrency", str(settings.worker_threads), "-Q", queues, "--loglevel", settings.log_level]
    command += ["--without-gossip", "--without-mingle"]
    node = f"{name}@{socket.gethostname()}"
    # SIGTERM lets running tasks end; the longest of them is a model call.
    grace = max(30.0, settings.model_timeout + 5.0)
    return Part(
        name=name,
        command=command,
        env=env,
        log=logs_path(settings.home) / f"{name}.log",
        cwd=_run_folder(settings.home),
        ready=lambda: ping(node),
        stops=((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)),
    )


def beat_part(settings: Settings, env: Mapping[str, str]) -> Part:
    folder = settings.home / "beat"
    folder.mkdir(exist_ok=True)
    schedule = folder / "schedule"
    asked = time.time()

    def ready() -> bool:  # shelve adds an ending of its own to the name
        return any(path.stat().st_mtime >= asked - 1 for path in folder.glob("schedule*"))

    command = celery_command(
        "beat", "--schedule", str(schedule), "--pidfile=", "--loglevel", settings.log_level
    )
    return Part(
        name="beat",
        command=command,
        env=env,
        log=logs_path(settings.home) / "beat.log",
        cwd=_run_folder(settings.home),
        ready=ready,
        stops=((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)),
    )


def flower_part(settings: Settings, env: Mapping[str, str], port: int) -> Part:
    """Flower; its login and other options come from workers/flower_config.py, not from the command line."""
    (settings.home / "flower").mkdir(mode=0o700, exist_ok=True)
    config = _ROOT / "workers" / "flower_config.py"
    command = celery_command("flower", f"--conf={config}", f"--address={HOST}", f"--port={port}")
    return Part(
        name="flower",
        command=command,
        env=env,
        log=logs_path(settings.home) / "flower.log",
        cwd=_run_folder(settings.home),
        ready=lambda: _answers(port, "/healthcheck"),
        url=f"http://{HOST}:{port}",
        address=f"http://{HOST}:{port}",
        stops=((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)),
    )


def api_part(settings: Settings, env: Mapping[str, str], port: int, *, embedded: bool) -> Part:
    """The HTTP API. With `embedded` it belongs to the stack's own database, and asks this machine no key."""
    command = [sys.executable, "-P", "-m", "api.serve", f"--host={HOST}", f"--port={port}"]
    return Part(
        name="api",
        command=[*command, "--embedded"] if embedded else command,
        env=env,
        log=logs_path(settings.home) / "api.log",
        cwd=_run_folder(settings.home),
        ready=lambda: _answers(port, "/healthz"),
        url=f"http://{HOST}:{port}",
        address=f"http://{HOST}:{port}",
        stops=((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)),
    )


def _run_folder(home: Path) -> Path:
    """An empty working directory: Celery imports from where it stands."""
    folder = home / "run"
    folder.mkdir(exist_ok=True)
    return folder


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class WorkerPing:
    """Asks workers, through the broker, whether they are there."""

    def __init__(self, settings: Settings) -> None:
        from shared.queue import (
            make_app,
        )  # Celery takes half a second to import; only a starting stack needs it

        self._app = make_app(settings)

    def __call__(self, node: str) -> bool:
        try:
            return bool(self._app.control.ping(destination=[node], timeout=0.5))
        except Exception:  # noqa: BLE001 - whatever the broker's client raises, the worker is not ready
            return False

    def close(self) -> None:
        self._app.close()
