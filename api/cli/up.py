"""`cragline up` and `cragline down`: the stack in the foreground, in the background, and its end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from api.cli.output import address
from shared.errors import StackError
from shared.settings import Settings, get_settings
from shared.stack.secrets import secrets_path
from shared.stack.state import (
    AlreadyRunning,
    StackState,
    check_home,
    logs_path,
    read_state,
    running_stack,
    stack_lock,
    unusable_home,
)

_START_TIMEOUT = 120.0  # seconds in which `up -d` must be ready

FlowerPort = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="Flower's port on 127.0.0.1. Left out: 5555, or a free one."),
]
ApiPort = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="The HTTP API's port on 127.0.0.1. Left out: 8585, or a free one."),
]
Workers = Annotated[
    int, typer.Option(min=1, help="Worker processes; each runs CRAGLINE_WORKER_THREADS threads.")
]
Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Return when all of it is ready, and leave it running.")
]


def up(
    flower_port: FlowerPort = None,
    api_port: ApiPort = None,
    workers: Workers = 1,
    detach: Detach = False,
) -> None:
    """Start the stack: Postgres, Valkey, workers, beat, Flower and the HTTP API. Ctrl-C stops all of it."""
    settings, console = get_settings(), Console()
    if detach:
        _up_detached(settings, console, workers=workers, flower_port=flower_port, api_port=api_port)
        return

    def on_ready(state: StackState) -> None:
        _summary(console, settings, state, ending="Ctrl-C stops all of it.")

    from shared.stack.supervisor import Supervisor, stack_planner

    planner = stack_planner(workers=workers, flower_port=flower_port, api_port=api_port)
    supervisor = Supervisor(settings, planner, lambda part, message: _step(console, part, message))
    if not supervisor.run(on_ready):
        raise StackError("Stopped before it was ready.")


def down() -> None:
    """Stop the stack that runs in this home, or what a killed one left behind."""
    from shared.stack.supervisor import stop_leftovers

    settings, console = get_settings(), Console()
    home = settings.home
    if not check_home(home):
        _nothing_to_stop(console, home)
        return
    try:
        with stack_lock(home):
            if not stop_leftovers(home, lambda part, message: _step(console, part, message)):
                _nothing_to_stop(console, home)
            return
    except AlreadyRunning:
        pass
    state = running_stack(home)
    if state is None:  # it took the lock a moment ago and has not written its file, or it has just ended
        raise StackError(f"A stack is being started or stopped in {home}. Try again in a moment.")
    _stop_and_wait(state, settings, console)


def _nothing_to_stop(console: Console, home: Path) -> None:
    _say(console, Text(f"No stack is running in {home}."))


def _stop_and_wait(state: StackState, settings: Settings, console: Console) -> None:
    """Ask the supervisor to stop and wait for its end; the workers may finish their tasks first."""
    patience = max(30.0, settings.model_timeout + 5.0) + 120.0
    deadline = time.monotonic() + patience
    os.kill(state.supervisor_pid, signal.SIGTERM)
    with console.status("stopping") as status:
        while state.supervised():
            left = ", ".join(part.name for part in state.parts if part.alive()) or "only the supervisor"
            status.update(f"stopping: {left}")
            if time.monotonic() > deadline:
                raise StackError(
                    f"The stack (pid {state.supervisor_pid}) has not stopped after {patience:.0f} s; "
                    f"still there: {left}. See {logs_path(settings.home)}."
                )
            time.sleep(0.1)
    _say(console, Text(f"Stopped the stack in {settings.home}."))


def _up_detached(
    settings: Settings, console: Console, *, workers: int, flower_port: int | None, api_port: int | None
) -> None:
    from shared.stack.services import child_env

    with stack_lock(settings.home):
        pass  # raises AlreadyRunning here, before a process is started
    log = logs_path(settings.home) / "supervisor.log"
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.touch(mode=0o600)
    except OSError as error:
        raise unusable_home(settings.home, error) from None
    command = [sys.executable, "-P", "-m", "shared.stack", "--workers", str(workers)]
    command += ["--flower-port", str(flower_port)] if flower_port is not None else []
    command += ["--api-port", str(api_port)] if api_port is not None else []
    with log.open("ab") as errors:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_env(settings),
            start_new_session=True,
        )
    try:
        _follow(child, console, log)
    except BaseException:  # a Ctrl-C too: what was begun is taken back
        _end(child)
        raise
    state = read_state(settings.home)
    if state is None:
        raise StackError(f"The stack ended again as soon as it was ready. See {log}.")
    _summary(console, settings, state, ending="`cragline down` stops all of it.")


def _follow(child: "subprocess.Popen[bytes]", console: Console, log: Path) -> None:
    """Show the steps that the supervisor tells, until it is ready. Raises StackError with its error."""
    timed_out = threading.Event()

    def give_up() -> None:
        timed_out.set()
        child.terminate()

    timer = threading.Timer(_START_TIMEOUT, give_up)
    timer.daemon = True
    timer.start()
    try:
        assert child.stdout is not None, "started with a pipe"
        for line in child.stdout:
            message: dict[str, Any] = json.loads(line)
            if "ready" in message:
                return
            if "error" in message:
                child.wait()
                raise StackError(str(message["error"]))
            _step(console, str(message["part"]), str(message["message"]))
    finally:
        timer.cancel()
    if timed_out.is_set():
        raise StackError(f"The stack was not ready after {_START_TIMEOUT:.0f} s and was stopped. See {log}.")
    raise StackError(f"The stack ended while it was starting (exit code {child.wait()}). See {log}.")


def _end(child: "subprocess.Popen[bytes]") -> None:
    if child.poll() is None:
        child.terminate()
        child.wait()


def _say(console: Console, text: Text) -> None:
    """Print; a reader that has seen enough (`cragline up -d | grep -q ready`) must not end the stack."""
    with suppress(BrokenPipeError, SystemExit):  # Rich exits on a broken pipe, and is quiet from then on
        console.print(text, soft_wrap=True)


def _step(console: Console, part: str, message: str) -> None:
    _say(console, Text.assemble((f"{part:<10}", "bold"), " ", message))


def _summary(console: Console, settings: Settings, state: StackState, *, ending: str) -> None:
    _say(console, Text())
    for name, value in _facts(settings, state):  # not a table: a folded address or path cannot be copied
        _step(console, name, value)
    _say(console, Text(f"\nAll of it is ready. {ending}"))


def _facts(settings: Settings, state: StackState) -> list[tuple[str, str]]:
    secrets = secrets_path(settings.home)
    by_setting = settings.flower_password is not None
    password = "CRAGLINE_FLOWER_PASSWORD" if by_setting else f"`flower` in {secrets}"
    workers = sum(part.name.startswith("worker-") for part in state.parts)
    web = "Tavily" if settings.web_search_on else "off (no TAVILY_API_KEY)"
    store = (
        address(settings.qdrant_url) if settings.qdrant_url else "the local store (no CRAGLINE_QDRANT_URL)"
    )
    return [
        ("Flower", state.url("flower") or "-"),
        ("", f"user {settings.flower_user}, password: {password}"),
        ("Page, API", state.url("api") or "-"),
        ("Postgres", _server(state, "postgres", "CRAGLINE_DATABASE_URL")),
        ("Valkey", _server(state, "valkey", "CRAGLINE_REDIS_URL")),
        ("Vectors", store),
        ("Workers", f"{workers}, with {settings.worker_threads} threads each"),
        ("Models", _models(settings)),
        ("Web search", web),
        ("Logs", str(logs_path(settings.home))),
    ]


def _server(state: StackState, name: str, variable: str) -> str:
    """Where a server listens, without its password."""
    url = state.url(name)
    return url.rpartition("@")[2] if url else f"yours ({variable})"


def _models(settings: Settings) -> str:
    if settings.provider == "local":
        return "local (no key: extractive answers, MiniLM embeddings)"
    where = f" at {address(settings.openai_base_url)}" if settings.openai_base_url else ""
    return f"openai: {settings.chat_model}{where}; embeddings: {settings.embedding_provider}"
