"""One part of the stack: how its process starts, when it is ready, how it ends."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from shared.errors import StackError

HOST = "127.0.0.1"
LOG_LIMIT = 10 * 1024 * 1024  # bytes; a longer log is set aside as <name>.log.1 when its part starts
_TAIL_BYTES = 64 * 1024
# Below the range from which Linux and macOS take the ports of outgoing connections: a client that keeps
# trying a port of that range while the server is down can end up connected to itself, and hold the port.
_PORTS = range(20_000, 32_000)

Stops = Sequence[tuple[signal.Signals, float]]  # signals to send one after the other, with seconds to wait


@dataclass(frozen=True)
class Part:
    """What is needed to run one part. `ready` may be called often; it must not block for long or raise."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(repr=False)  # may hold keys
    log: Path
    cwd: Path
    ready: Callable[[], bool]
    url: str | None = field(default=None, repr=False)  # may hold a password
    address: str | None = None  # for people: host:port, without a password
    stops: Stops = ((signal.SIGTERM, 30.0), (signal.SIGKILL, 5.0))
    start_timeout: float = 100.0  # seconds
    run_as: Mapping[str, Any] = field(default_factory=dict)  # user=, group=, extra_groups= of Popen
    before_launch: Callable[[], None] | None = None  # also called before each restart


@dataclass
class Running:
    """A part and its process."""

    part: Part
    process: subprocess.Popen[bytes]
    mark: str | None
    since: float  # time.monotonic()


def process_mark(pid: int) -> str | None:
    """A text that no later process with the same id shares; None when there is no such process.

    A process that has ended and was not yet waited for counts as gone.
    """
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the command in brackets may hold blanks and brackets
        return None if fields[0] in ("Z", "X") else f"{_boot_id()}:{fields[19]}"
    ps = ["/bin/ps", "-o", "stat=,lstart=,comm=", "-p", str(pid)]
    shown = subprocess.run(ps, capture_output=True, text=True, check=False).stdout.strip()
    state, _, rest = shown.partition(" ")
    return None if not shown or state.startswith("Z") else rest.strip()


def command_of(pid: int) -> str:
    """The command line of a process, blanks between the words; empty when there is no such process."""
    if sys.platform == "linux":
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return ""
        return words.replace(b"\0", b" ").decode("utf-8", errors="replace").strip()
    ps = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(ps, capture_output=True, text=True, errors="replace", check=False).stdout.strip()


@lru_cache(maxsize=1)
def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return "boot"


def is_same_process(pid: int, mark: str | None) -> bool:
    """Whether `pid` is still the process that had this mark."""
    return mark is not None and process_mark(pid) == mark


def port_is_free(port: int) -> bool:
    """Whether a server of this process could listen on 127.0.0.1:`port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: TIME_WAIT is no obstacle
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port(*, avoid: Sequence[int] = ()) -> int:
    """A port that nothing listens on. Random, so that stacks that start together do not pick the same."""
    for port in random.sample(_PORTS, 200):
        if port not in avoid and port_is_free(port):
            return port
    raise StackError(f"No free port was found between {_PORTS.start} and {_PORTS.stop} on {HOST}.")


def tail(path: Path, lines: int = 20) -> str:
    """The last lines of a log; empty when there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = log.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def set_aside_long_log(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > LOG_LIMIT:
            path.replace(path.with_name(path.name + ".1"))


def launch(part: Part) -> Running:
    """Start a part's process in a session of its own, so that a Ctrl-C reaches only the supervisor."""
    if part.before_launch is not None:
        part.before_launch()
    part.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # logs may quote what people asked
    set_aside_long_log(part.log)
    with part.log.open("ab") as log:
        try:
            process = subprocess.Popen(
                list(part.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(part.env),
                cwd=part.cwd,
                start_new_session=True,
                **part.run_as,
            )
        except OSError as error:
            raise StackError(f"{part.name} could not be started: {error}") from error
    return Running(part, process, process_mark(process.pid), time.monotonic())


def wait_ready(
    running: Sequence[Running],
    *,
    others: Sequence[Running] = (),
    check: Callable[[], None] = lambda: None,
    on_ready: Callable[[Part], None] = lambda part: None,
) -> None:
    """Return when every part is ready. `check` is called between two looks; it may raise to give up.

    Raises StackError, with the end of the log, when a part (or one of `others`) dies or takes too long.
    """
    waiting = list(running)
    while waiting:
        check()
        for item in (*running, *others):
            if (code := item.process.poll()) is not None:
                raise StackError(_died_at_start(item.part, code))
        for item in list(waiting):
            if item.part.ready():
                waiting.remove(item)
                on_ready(item.part)
            elif time.monotonic() - item.since > item.part.start_timeout:
                seconds = f"{item.part.start_timeout:.0f} s"
                raise StackError(
                    f"{item.part.name} was not ready after {seconds}.{_log_excerpt(item.part.log)}"
                )
        if waiting:
            time.sleep(0.05)


def _died_at_start(part: Part, code: int) -> str:
    return f"{part.name} {describe_exit(code)} while it was starting.{_log_excerpt(part.log)}"


def _log_excerpt(log: Path) -> str:
    end = tail(log)
    return f" The end of {log}:\n{end}" if end else f" Its log {log} is empty."


def describe_exit(code: int) -> str:
    """A Popen return code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def stop_all(running: Sequence[Running], *, hurry: Callable[[], bool] = lambda: False) -> None:
    """Stop parts side by side: each gets its signals, one after the other, until it has ended.

    Once `hurry()` is true, no signal is waited for longer than a second. SIGKILL goes to the whole
    process group, and so reaches the part's own children.
    """
    ending = [_Ending(item) for item in running if item.process.poll() is None]
    while waiting := [one for one in ending if one.running.process.poll() is None]:
        for one in waiting:
            one.press(hurry=hurry())
        time.sleep(0.05)
    for one in ending:
        kill_group(one.running.process.pid)  # children of a part that ended by itself


class _Ending:
    """How far the stopping of one part has come."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._signals = iter(running.part.stops)
        self._sent = self._until = 0.0

    def press(self, *, hurry: bool) -> None:
        """Send the next signal, if the one before had its time."""
        now = time.monotonic()
        if now < (min(self._until, self._sent + 1.0) if hurry else self._until):
            return
        number, seconds = next(self._signals, (signal.SIGKILL, 5.0))
        send(self.running.process.pid, number)
        self._sent, self._until = now, now + seconds


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a part that may have ended; SIGKILL goes to its process group too."""
    if number == signal.SIGKILL:
        kill_group(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_group(pid: int) -> None:
    """SIGKILL to what is left of the process group that `pid` leads or led."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def stop_stranger(pid: int, mark: str | None, stops: Stops) -> None:
    """Stop a process that is not our child, as long as it is the one that had `mark`."""
    for number, seconds in stops:
        deadline = time.monotonic() + seconds
        if not is_same_process(pid, mark):
            return
        send(pid, number)
        while is_same_process(pid, mark) and time.monotonic() < deadline:
            time.sleep(0.05)
    if is_same_process(pid, mark):
        raise StackError(f"Process {pid}, left from an earlier stack, could not be stopped.")
