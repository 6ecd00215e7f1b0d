"""The supervisor as a process of its own: what it starts, restarts and stops, and what a kill leaves."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import typer

from api.cli.up import down, up
from shared.errors import StackError
from shared.settings import Settings, get_settings
from shared.stack.postgres_user import remove_data
from shared.stack.process import process_mark
from shared.stack.state import part_url, stack_path

BOTH = "postgres,valkey"
STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('idle', flush=True)\n"
    "time.sleep(600)\n"
)


def wait_for(look: Callable[[], Any], seconds: float = 30) -> Any:
    """What `look` returns, once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


class Stack:
    """A running small stack."""

    def __init__(self, home: Path, *code: str, servers: str = "valkey") -> None:
        self.home = home
        command = [sys.executable, "-m", "tests.integration.stack.small_stack", str(home), servers, *code]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.told: list[str] = []

    def until_ready(self) -> "Stack":
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(line.strip())
            if line == "READY\n":
                return self
        raise AssertionError(f"not ready: {self.process.communicate()[1]}")

    def state(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(stack_path(self.home).read_text())
        return value

    def pids(self) -> dict[str, int]:
        return {part["name"]: part["pid"] for part in self.state()["parts"]}

    def url(self, name: str) -> str:
        return next(part["url"] for part in self.state()["parts"] if part["name"] == name)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Start stacks by the name of their home; whatever is left of them is stopped at the end."""
    stacks: list[Stack] = []

    def begin(name: str = "home", *code: str, servers: str = "valkey") -> Stack:
        stacks.append(Stack(tmp_path / name, *code, servers=servers))
        return stacks[-1]

    yield begin
    for stack in stacks:
        if stack.process.poll() is None:
            stack.stop()
        with home_of(stack.home), suppress(StackError, typer.Exit):
            down()
        remove_data(stack.home)


@contextmanager
def home_of(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRAGLINE_HOME", str(home))
        get_settings.cache_clear()
        yield
    get_settings.cache_clear()


def all_gone(pids: dict[str, int]) -> bool:
    return all(process_mark(pid) is None for pid in pids.values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_from_start_to_stop(start: Callable[..., Stack], number: signal.Signals) -> None:
    stack = start(servers=BOTH).until_ready()
    state, pids = stack.state(), stack.pids()
    assert list(pids) == ["postgres", "valkey", "worker-1"]
    assert state["ready"] is True
    assert state["supervisor_pid"] == stack.process.pid
    assert stack_path(stack.home).stat().st_mode & 0o777 == 0o600
    assert all(process_mark(pid) for pid in pids.values())
    with psycopg.connect(stack.url("postgres")) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("cragline",)
    assert redis.Redis.from_url(stack.url("valkey")).ping()
    settings = Settings(home=stack.home, _env_file=None)  # type: ignore[call-arg]
    assert part_url(settings, "postgres") == stack.url("postgres")

    assert stack.stop(number) == 0
    assert all_gone(pids)
    assert not stack_path(stack.home).exists()
    with pytest.raises(StackError, match="No stack is running"):
        part_url(settings, "postgres")


def test_a_second_start_says_so_and_leaves_the_first_alone(start: Callable[..., Stack]) -> None:
    first = start().until_ready()
    pids = first.pids()
    second = start()
    _, error = second.process.communicate(timeout=30)
    assert second.process.returncode == 1
    for word in ("Already running", str(first.process.pid), "cragline down"):
        assert word in error
    assert first.pids() == pids
    assert not any(process_mark(pid) is None for pid in pids.values())
    # ... and so does the command, before it starts anything
    with home_of(first.home), pytest.raises(StackError, match="Already running"):
        up(detach=True)


def test_two_homes_run_side_by_side(start: Callable[..., Stack]) -> None:
    one, two = start("one"), start("two")
    one.until_ready()
    two.until_ready()
    assert not set(one.pids().values()) & set(two.pids().values())
    redis.Redis.from_url(one.url("valkey")).set("whose", "one")
    assert redis.Redis.from_url(two.url("valkey")).get("whose") is None
    assert one.stop() == 0
    assert redis.Redis.from_url(two.url("valkey")).ping()


@pytest.mark.parametrize("name", ["worker-1", "postgres"])
def test_a_part_that_dies_is_started_again(start: Callable[..., Stack], name: str) -> None:
    stack = start(servers=BOTH).until_ready()
    old, url = stack.pids()[name], stack.url(name)
    os.kill(old, signal.SIGKILL)
    new = wait_for(lambda: (pid := stack.pids()[name]) != old and pid)
    assert process_mark(new)
    assert stack.url(name) == url  # the other parts were told this one
    log = (stack.home / "logs" / "supervisor.log").read_text()
    assert f"{name}: was ended by SIGKILL; starting it again in 1 s" in log
    if name == "postgres":
        wait_for(lambda: connects(url))
    assert stack.stop() == 0
    assert process_mark(new) is None


def connects(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_part_that_keeps_dying_is_named_and_its_pauses_grow(start: Callable[..., Stack]) -> None:
    code = "print('idle', flush=True); import time; time.sleep(0.7); raise SystemExit(3)"
    stack = start("home", code).until_ready()
    log = stack.home / "logs" / "supervisor.log"
    wait_for(lambda: "again in 4 s" in log.read_text())
    said = log.read_text()
    assert said.index("again in 1 s") < said.index("again in 2 s") < said.index("again in 4 s")
    assert (
        "worker-1: keeps dying (3 times, the rest goes on): ended with exit code 3; starting it again in 4 s"
        in said
    )
    assert stack.state()["ends"] == {"worker-1": {"times": 3, "last": "ended with exit code 3"}}
    assert process_mark(stack.pids()["valkey"])


def test_what_a_killed_supervisor_left_is_stopped_by_the_next_start(start: Callable[..., Stack]) -> None:
    killed = start(servers=BOTH).until_ready()
    left = killed.pids()
    killed.stop(signal.SIGKILL)
    assert all(process_mark(pid) for pid in left.values())  # nobody told them to end
    settings = Settings(home=killed.home, _env_file=None)  # type: ignore[call-arg]
    with pytest.raises(StackError, match="No stack is running"):
        part_url(settings, "postgres")

    fresh = start(servers=BOTH).until_ready()
    assert all_gone(left)
    for name, pid in left.items():
        assert f"{name} stopping it first: left from a stack that was killed (pid {pid})" in fresh.told
    with psycopg.connect(fresh.url("postgres")):
        pass


def test_down_stops_what_a_killed_supervisor_left(
    start: Callable[..., Stack], capsys: pytest.CaptureFixture[str]
) -> None:
    killed = start().until_ready()
    left = killed.pids()
    killed.stop(signal.SIGKILL)
    with home_of(killed.home):
        down()
        assert all_gone(left)
        assert str(left["valkey"]) in capsys.readouterr().out
        down()
    assert "No stack is running" in capsys.readouterr().out


def test_down_stops_a_running_stack(start: Callable[..., Stack], capsys: pytest.CaptureFixture[str]) -> None:
    stack = start().until_ready()
    pids = stack.pids()
    with home_of(stack.home):
        down()
    assert all_gone(pids)
    assert "Stopped the stack" in capsys.readouterr().out
    assert stack.process.wait(10) == 0


def test_down_without_a_home_makes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with home_of(tmp_path / "nothing"):
        down()
    assert "No stack is running" in capsys.readouterr().out
    assert not (tmp_path / "nothing").exists()


def test_a_failed_start_shows_why_and_leaves_nothing(start: Callable[..., Stack]) -> None:
    stack = start("home", "raise SystemExit('the reason why')")
    pids = wait_for(lambda: stack_path(stack.home).exists() and (p := stack.pids()) and "valkey" in p and p)
    _, error = stack.process.communicate(timeout=60)
    assert stack.process.returncode == 1
    assert "worker-1 ended with exit code 1" in error
    assert "the reason why" in error
    assert all_gone(pids)
    assert not stack_path(stack.home).exists()


def test_a_stop_while_starting_leaves_nothing(start: Callable[..., Stack]) -> None:
    stack = start("home", "import time; time.sleep(600)")  # never ready
    pids = wait_for(lambda: stack_path(stack.home).exists() and (p := stack.pids()) and "worker-1" in p and p)
    assert stack.stop(signal.SIGINT) == 0
    assert all_gone(pids)


def test_a_second_ctrl_c_does_not_wait_for_a_stubborn_service(start: Callable[..., Stack]) -> None:
    stack = start("home", STUBBORN, servers=BOTH).until_ready()
    pids = stack.pids()
    stack.process.send_signal(signal.SIGINT)
    log = stack.home / "logs" / "supervisor.log"
    wait_for(lambda: "stopping worker-1" in log.read_text())
    assert all(process_mark(pid) for pid in pids.values())  # the servers stay while a task may end
    assert stack.stop(signal.SIGINT) == 0
    assert all_gone(pids)
    assert "database system is shut down" in (stack.home / "logs" / "postgres.log").read_text()


def test_a_taken_port_is_told_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for detach in (True, False):
            with home_of(home), pytest.raises(StackError, match=f"Port {port} .*--flower-port"):
                up(flower_port=port, detach=detach)
    assert "starting" not in capsys.readouterr().out
    assert not (home / "postgres").exists()
    assert not stack_path(home).exists()


def test_servers_of_ones_own_are_asked_first_and_their_passwords_kept(tmp_path: Path) -> None:
    with home_of(tmp_path / "home"), pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRAGLINE_DATABASE_URL", "postgresql://u:s3cr3t@127.0.0.1:9/d")
        patch.setenv("CRAGLINE_REDIS_URL", "redis://:s3cr3t@127.0.0.1:9/0")
        get_settings.cache_clear()
        with pytest.raises(StackError, match="CRAGLINE_REDIS_URL does not answer") as caught:
            up()
        assert "s3cr3t" not in str(caught.value)
        assert not (tmp_path / "home" / "postgres").exists()
