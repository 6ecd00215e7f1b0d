"""`stack.json`: what the supervisor of a home runs, and where; and the lock that it holds.

    {"supervisor_pid": 4711, "ready": true, "started_at": "2031-05-06T07:08:09+00:00",
     "parts": [{"name": "postgres", "pid": 4712, "url": "postgresql://..."}, ...],
     "marks": {"4711": "...", "4712": "..."},
     "ends": {"worker-1": {"times": 3, "last": "ended with exit code 1"}}}

`ends` names the parts that have died lately and were, or will be, started again. The URLs hold passwords, so
the file has mode 600. `marks` tell a process from a later one with the same id. The lock, not the file,
decides whether a stack is running: the kernel drops it with its holder.
"""

import errno
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shared.errors import StackError
from shared.settings import Settings
from shared.stack.process import is_same_process, process_mark

KEEPS_DYING = 3  # ends in a row: once may be an accident, twice its consequence


@dataclass
class PartState:
    name: str
    pid: int
    url: str | None = field(default=None, repr=False)
    mark: str | None = field(default=None, repr=False)

    def alive(self) -> bool:
        return is_same_process(self.pid, self.mark)


@dataclass
class Ends:
    """How often a part has ended since it last ran steadily, and how it did the last time."""

    times: int
    last: str

    @property
    def keeps_dying(self) -> bool:
        return self.times >= KEEPS_DYING


@dataclass
class StackState:
    supervisor_pid: int
    supervisor_mark: str | None
    ready: bool = False
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    parts: list[PartState] = field(default_factory=list)
    ends: dict[str, Ends] = field(default_factory=dict)  # by the name of the part

    @classmethod
    def of_this_process(cls) -> "StackState":
        return cls(os.getpid(), process_mark(os.getpid()))

    def supervised(self) -> bool:
        """Whether the supervisor that wrote this is still alive."""
        return is_same_process(self.supervisor_pid, self.supervisor_mark)

    def url(self, name: str) -> str | None:
        return next((part.url for part in self.parts if part.name == name), None)


def unusable_home(home: Path, error: OSError) -> StackError:
    """The error for a home that is a file, lies below one, or may not be read or written."""
    return StackError(
        f"{home} cannot be the home folder ({error.strerror or error}). "
        "Set CRAGLINE_HOME to a folder that you may write to."
    )


def check_home(home: Path) -> bool:
    """Whether the home exists. Raises StackError when it could not be used, now or once it is made."""
    try:
        if not stat.S_ISDIR(home.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        _check_writable(home)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unusable_home(home, error) from None
    return True


def make_home(home: Path) -> None:
    """Make the home if need be. Raises StackError when it cannot be used."""
    try:
        home.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # something that is no folder; told by the next line
        pass
    except OSError as error:
        raise unusable_home(home, error) from None
    if not check_home(home):
        raise unusable_home(home, FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)))


def _check_writable(home: Path) -> None:
    """Raises OSError. By a file, for the mode says nothing of root, of read-only mounts and of full disks."""
    with tempfile.TemporaryFile(dir=home):
        pass


def stack_path(home: Path) -> Path:
    return home / "stack.json"


def store_owner_path(home: Path) -> Path:
    """Where the owner of the local vector store says on which port it answers."""
    return home / "qdrant-owner.json"


def logs_path(home: Path) -> Path:
    return home / "logs"


def write_private(path: Path, text: str) -> None:
    """Replace a file in one move, readable by its owner only."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def write_state(home: Path, state: StackState) -> None:
    marks = {str(part.pid): part.mark for part in state.parts}
    value = {
        "supervisor_pid": state.supervisor_pid,
        "ready": state.ready,
        "started_at": state.started_at,
        "parts": [{"name": part.name, "pid": part.pid, "url": part.url} for part in state.parts],
        "marks": marks | {str(state.supervisor_pid): state.supervisor_mark},
        "ends": {name: asdict(ends) for name, ends in state.ends.items()},
    }
    write_private(stack_path(home), json.dumps(value, indent=2) + "\n")


def read_state(home: Path) -> StackState | None:
    """What `stack.json` says; None when there is none or it is not one of ours.

    Raises StackError when the home cannot be used, or the file may not be read.
    """
    path = stack_path(home)
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        marks = value["marks"]
        parts = [
            PartState(str(part["name"]), int(part["pid"]), part["url"], marks.get(str(part["pid"])))
            for part in value["parts"]
        ]
        ends = {
            name: Ends(int(one["times"]), str(one["last"])) for name, one in value.get("ends", {}).items()
        }
        pid = int(value["supervisor_pid"])
        return StackState(
            pid, marks.get(str(pid)), bool(value["ready"]), str(value["started_at"]), parts, ends
        )
    except FileNotFoundError:
        return None
    except PermissionError as error:
        if not os.access(home, os.X_OK):
            raise unusable_home(home, error) from None
        raise StackError(f"{path} belongs to another user. Run as that user, or set CRAGLINE_HOME.") from None
    except OSError as error:
        raise unusable_home(home, error) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def remove_state(home: Path) -> None:
    stack_path(home).unlink(missing_ok=True)


def running_stack(home: Path) -> StackState | None:
    """The state of the stack that runs in this home; None when its supervisor is not alive."""
    state = read_state(home)
    return state if state is not None and state.supervised() else None


def part_url(settings: Settings, name: str) -> str:
    """The URL of a part of the running stack, with its password. Raises StackError when there is none."""
    state = running_stack(settings.home)
    if state is None:
        raise StackError(
            f"No stack is running in {settings.home}. Start it with `cragline up -d`, "
            "or set CRAGLINE_DATABASE_URL and CRAGLINE_REDIS_URL to servers of your own."
        )
    url = state.url(name)
    if url is None:
        still = "" if state.ready else " It is still starting: try again in a moment."
        raise StackError(f"The stack in {settings.home} runs no {name}.{still}")
    return url


class AlreadyRunning(StackError):
    """Another supervisor holds the lock of this home."""


@contextmanager
def stack_lock(home: Path) -> Iterator[None]:
    """Hold the lock of a home, which is made if need be. Raises AlreadyRunning when another process holds
    it, StackError when the home cannot be used.

    Never inherited: the descriptor closes on exec, so the lock cannot outlive the supervisor in a child.
    """
    make_home(home)
    try:
        handle = os.open(home / "stack.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable_home(home, error) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(_already_running(home)) from None
        yield
    finally:
        os.close(handle)


def _already_running(home: Path) -> str:
    state = running_stack(home)
    if state is None:
        return f"A stack is being started or stopped in {home}. Try again in a moment."
    flower = state.url("flower")
    where = f", Flower {flower}" if flower else ""
    return (
        f"Already running in {home} since {state.started_at}, pid {state.supervisor_pid}{where}. "
        "Stop it with `cragline down`."
    )
