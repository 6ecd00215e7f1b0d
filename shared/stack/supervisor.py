"""The supervisor: one process that starts every part of the stack, restarts what dies, and stops it all."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import redis
from pydantic import SecretStr
from sqlalchemy.exc import SQLAlchemyError

from shared.clean import one_line
from shared.errors import StackError
from shared.settings import Settings
from shared.stack.postgres import STOPS as POSTGRES_STOPS
from shared.stack.postgres import postgres_part
from shared.stack.process import (
    Part,
    Running,
    Stops,
    describe_exit,
    free_port,
    kill_group,
    launch,
    set_aside_long_log,
    stop_all,
    stop_stranger,
    wait_ready,
)
from shared.stack.secrets import ensure_secrets, flower_login
from shared.stack.services import (
    WorkerPing,
    api_part,
    beat_part,
    check_graphs,
    child_env,
    choose_api_port,
    choose_flower_port,
    flower_part,
    worker_part,
)
from shared.stack.state import (
    Ends,
    PartState,
    StackState,
    logs_path,
    read_state,
    remove_state,
    stack_lock,
    write_state,
)
from shared.stack.valkey import valkey_part

Report = Callable[[str, str], None]  # part, message
_LONGEST_PAUSE = 30.0  # seconds before a part that keeps dying is started again
_STEADY = 60.0  # a part that ran for so many seconds begins again with the shortest pause
_ORPHAN_STOPS: Stops = ((signal.SIGTERM, 30.0), (signal.SIGKILL, 5.0))


@dataclass
class Plan:
    """What a stack consists of: servers first, then `prepare`, then the services that need both."""

    servers: Sequence[Part] = ()
    prepare: Callable[[Report], None] = lambda report: None
    services: Sequence[Part] = ()
    finish: Callable[[], None] = lambda: None  # once all of it is ready


Planner = Callable[[Settings, Report], Plan]


def stack_planner(
    *, workers: int = 1, flower_port: int | None = None, api_port: int | None = None
) -> Planner:
    """The planner of the real stack. It raises StackError before anything is started."""

    def plan(settings: Settings, report: Report) -> Plan:
        return _plan_stack(settings, report, workers=workers, ports=(flower_port, api_port))

    return plan


def _plan_stack(
    settings: Settings, report: Report, *, workers: int, ports: tuple[int | None, int | None]
) -> Plan:
    home, port = settings.home, choose_flower_port(ports[0])
    api_port = choose_api_port(ports[1], avoid=[port])
    secrets = ensure_secrets(home)
    flower_login(settings)
    check_graphs(settings, child_env(settings))
    servers: list[Part] = []
    taken = [port, api_port]
    updates: dict[str, SecretStr] = {}
    if settings.database_url is None:
        taken.append(free_port(avoid=taken))
        part = postgres_part(
            home, secrets.postgres, taken[-1], say=lambda message: report("postgres", message)
        )
        servers.append(part)
        updates["database_url"] = SecretStr(part.url or "")
    if settings.redis_url is None:
        part = valkey_part(home, secrets.valkey, free_port(avoid=taken))
        servers.append(part)
        updates["redis_url"] = SecretStr(part.url or "")
    inside = settings.model_copy(update=updates)
    env, ping = child_env(inside), _LazyPing(inside)
    services = [worker_part(inside, number, env, ping) for number in range(1, workers + 1)]
    services += [beat_part(inside, env), flower_part(inside, env, port)]
    services.append(api_part(inside, env, api_port, embedded=settings.database_url is None))

    def prepare(report: Report) -> None:
        _check_redis(inside)
        _migrate(inside, report)

    return Plan(servers, prepare, services, ping.close)


class _LazyPing:
    """Makes its Celery app at the first question, when the broker runs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ping: WorkerPing | None = None

    def __call__(self, node: str) -> bool:
        self._ping = self._ping or WorkerPing(self._settings)
        return self._ping(node)

    def close(self) -> None:
        if self._ping is not None:
            self._ping.close()


def _migrate(settings: Settings, report: Report) -> None:
    from shared.migrate import upgrade  # Alembic is needed by nothing else of the stack

    assert settings.database_url is not None, "the plan filled it in"
    try:
        upgrade(settings.database_url.get_secret_value())
    except SQLAlchemyError as error:
        raise StackError(
            f"The database could not be brought up to date: {one_line(str(error), 500)}"
        ) from None
    report("database", "schema is up to date")


def _check_redis(settings: Settings) -> None:
    """Redis must answer now: a worker would wait for a wrong address until the timeout."""
    assert settings.redis_url is not None, "the plan filled it in"
    try:
        client = redis.Redis.from_url(
            settings.redis_url.get_secret_value(), socket_connect_timeout=5, socket_timeout=5
        )
        client.ping()
        client.close()
    except ValueError:  # its text would quote the URL
        raise StackError("CRAGLINE_REDIS_URL should look like redis://:password@host:6379/0.") from None
    except redis.RedisError as error:
        raise StackError(
            f"The Redis of CRAGLINE_REDIS_URL does not answer: {one_line(str(error), 300)}"
        ) from None


@dataclass
class _Kept:
    """A part under supervision."""

    running: Running
    pause: float = 1.0
    restart_at: float | None = None  # time.monotonic(); set while it is down
    service: bool = False
    ends: Ends | None = None  # since it last ran steadily


class _StopAsked(Exception):
    """A stop was asked for while the stack was starting."""


@dataclass
class Supervisor:
    """Runs the stack of one home until it is asked to stop.

    `report(part, message)` is told each step; the same goes to logs/supervisor.log.
    """

    settings: Settings
    planner: Planner
    report: Report = lambda part, message: None
    _stop: threading.Event = field(default_factory=threading.Event)
    _hurry: threading.Event = field(default_factory=threading.Event)
    _kept: list[_Kept] = field(default_factory=list)

    def run(self, on_ready: Callable[[StackState], None] = lambda state: None) -> bool:
        """Start everything, call `on_ready`, watch, and stop everything.

        Returns False when it was asked to stop before all was ready. Raises AlreadyRunning, or StackError
        with the reason why the start failed; nothing is left running in any case.
        """
        home = self.settings.home
        with stack_lock(home), self._signals():
            set_aside_long_log(self._log_path)
            stop_leftovers(home, self._say)
            self._state = StackState.of_this_process()
            write_state(home, self._state)
            try:
                self._start(self.planner(self.settings, self._say))
                on_ready(self._state)
                while not self._stop.wait(0.25):
                    self._look_after()
            except _StopAsked:
                return False
            finally:
                self._stop_everything()
                remove_state(home)
        return True

    def ask_to_stop(self) -> None:
        """Stop in good order. Asked again: the services get a second to end instead of their grace."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    # -- starting ------------------------------------------------------------------------------------

    def _start(self, plan: Plan) -> None:
        self._bring_up(plan.servers, service=False)
        plan.prepare(self._say)
        self._bring_up(plan.services, service=True)
        plan.finish()
        self._state.ready = True
        self._write_state()

    def _bring_up(self, parts: Sequence[Part], *, service: bool) -> None:
        """Start parts side by side (most of it is waiting for imports and disks), then wait for all."""
        for part in parts:
            self._check_stop()
            self._say(part.name, "starting")
            self._kept.append(_Kept(launch(part), service=service))
            self._write_state()
        started = [kept.running for kept in self._kept]  # the earlier ones too: they must not die unseen
        pending = [item for item in started if item.part in parts]
        wait_ready(pending, others=started, check=self._check_stop, on_ready=self._say_ready)

    def _say_ready(self, part: Part) -> None:
        self._say(part.name, f"ready on {part.address}" if part.address else "ready")

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise _StopAsked

    # -- watching ------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        for kept in self._kept:
            if kept.restart_at is None:
                self._notice_end(kept)
            elif time.monotonic() >= kept.restart_at:
                self._restart(kept)

    def _notice_end(self, kept: _Kept) -> None:
        code = kept.running.process.poll()
        if kept.ends is not None and time.monotonic() - kept.running.since > _STEADY:
            kept.pause, kept.ends = 1.0, None
            self._save_state()
        if code is None:
            return
        kill_group(kept.running.process.pid)  # children that it left
        self._plan_restart(kept, describe_exit(code))

    def _plan_restart(self, kept: _Kept, why: str) -> None:
        part = kept.running.part
        kept.ends = Ends(kept.ends.times + 1 if kept.ends else 1, why)
        keeps = f"keeps dying ({kept.ends.times} times, the rest goes on): " if kept.ends.keeps_dying else ""
        self._say(part.name, f"{keeps}{why}; starting it again in {kept.pause:.0f} s. Its log is {part.log}")
        self._save_state()
        kept.restart_at = time.monotonic() + kept.pause
        kept.pause = min(kept.pause * 2, _LONGEST_PAUSE)

    def _restart(self, kept: _Kept) -> None:
        try:
            kept.running = launch(kept.running.part)
        except (StackError, OSError) as error:
            self._plan_restart(kept, f"could not be started: {error}")
            return
        kept.restart_at = None
        self._save_state()
        self._say(kept.running.part.name, f"started again, pid {kept.running.process.pid}")

    # -- stopping ------------------------------------------------------------------------------------

    def _stop_everything(self) -> None:
        """Services first and side by side, so that they can still reach the servers; then the servers."""
        services = [kept.running for kept in reversed(self._kept) if kept.service]
        servers = [kept.running for kept in reversed(self._kept) if not kept.service]
        try:
            if services:
                self._say("stack", "stopping " + ", ".join(item.part.name for item in services))
            stop_all(services, hurry=self._hurry.is_set)
        finally:
            for item in servers:
                self._say("stack", f"stopping {item.part.name}")
                stop_all([item])
        if self._kept:
            self._say("stack", "stopped")

    # -- telling -------------------------------------------------------------------------------------

    @property
    def _log_path(self) -> Path:
        return logs_path(self.settings.home) / "supervisor.log"

    def _say(self, part: str, message: str) -> None:
        """Never raises: neither a full disk nor a closed terminal may keep the parts from being stopped."""
        with suppress(OSError):
            self._log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._log_path.open("a", encoding="utf-8") as log:
                log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {part}: {message}\n")
        with suppress(OSError, ValueError, SystemExit):  # Rich exits on a broken pipe
            self.report(part, message)

    def _write_state(self) -> None:
        """A part that is down keeps its old entry, so that its URL stays known until it is back."""
        self._state.parts = [
            PartState(item.part.name, item.process.pid, item.part.url, item.mark)
            for item in (kept.running for kept in self._kept)
        ]
        self._state.ends = {kept.running.part.name: kept.ends for kept in self._kept if kept.ends}
        write_state(self.settings.home, self._state)

    def _save_state(self) -> None:
        with suppress(OSError):  # a full disk: better a stale file than no stack
            self._write_state()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and a closed terminal ask to stop (only a main thread can be asked so)."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(number: int, frame: FrameType | None) -> None:
            self.ask_to_stop()

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, asked) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def stop_leftovers(home: Path, report: Report) -> bool:
    """Stop the parts that a killed supervisor left behind; the caller holds the lock of the home.

    Returns whether there were any. Services go first, then the servers in reverse order of their start.
    """
    state = read_state(home)
    left = [part for part in state.parts if part.alive() and part.pid != os.getpid()] if state else []
    servers = [part for part in left if part.name in ("postgres", "valkey")]
    for part in [part for part in left if part not in servers] + servers[::-1]:
        report(part.name, f"stopping it first: left from a stack that was killed (pid {part.pid})")
        stops = POSTGRES_STOPS if part.name == "postgres" else _ORPHAN_STOPS
        stop_stranger(part.pid, part.mark, stops)
    remove_state(home)
    return bool(left)
