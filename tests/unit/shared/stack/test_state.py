import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.errors import StackError
from shared.settings import Settings
from shared.stack.process import process_mark
from shared.stack.state import (
    AlreadyRunning,
    Ends,
    PartState,
    StackState,
    check_home,
    make_home,
    part_url,
    read_state,
    running_stack,
    stack_lock,
    stack_path,
    write_private,
    write_state,
)

URL = "postgresql://cragline:pw@127.0.0.1:20001/cragline"


def a_stack(home: Path, *, mark: str | None = None) -> StackState:
    state = StackState(os.getpid(), mark or process_mark(os.getpid()), ready=True)
    state.parts = [
        PartState("postgres", os.getpid(), URL, state.supervisor_mark),
        PartState("worker-1", 1, None, "x"),
    ]
    write_state(home, state)
    return state


def settings(home: Path) -> Settings:
    return Settings(home=home, _env_file=None)  # type: ignore[call-arg]


def test_the_file_has_the_promised_shape_and_is_private(tmp_path: Path) -> None:
    a_stack(tmp_path)
    value = json.loads(stack_path(tmp_path).read_text())
    assert value["parts"] == [
        {"name": "postgres", "pid": os.getpid(), "url": URL},
        {"name": "worker-1", "pid": 1, "url": None},
    ]
    assert value["ready"] is True
    assert value["supervisor_pid"] == os.getpid()
    assert stack_path(tmp_path).stat().st_mode & 0o777 == 0o600


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    state = a_stack(tmp_path)
    assert read_state(tmp_path) == state
    assert running_stack(tmp_path) == state
    state.ends = {"worker-1": Ends(3, "exit code 1")}
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state


@pytest.mark.parametrize("text", ["", "{", "[]", '{"parts": []}', '{"parts": [{}], "marks": {}}', "null"])
def test_a_damaged_file_counts_as_none(tmp_path: Path, text: str) -> None:
    stack_path(tmp_path).write_text(text)
    assert read_state(tmp_path) is None


def test_part_url_of_a_running_stack(tmp_path: Path) -> None:
    a_stack(tmp_path)
    assert part_url(settings(tmp_path), "postgres") == URL


def test_part_url_without_a_stack_names_the_home_and_the_remedies(tmp_path: Path) -> None:
    with pytest.raises(StackError) as caught:
        part_url(settings(tmp_path), "postgres")
    for word in (str(tmp_path), "cragline up -d", "CRAGLINE_DATABASE_URL"):
        assert word in str(caught.value)


def test_a_recycled_process_id_is_not_taken_for_the_supervisor(tmp_path: Path) -> None:
    a_stack(tmp_path, mark="another boot:1")
    assert running_stack(tmp_path) is None
    with pytest.raises(StackError, match="No stack is running"):
        part_url(settings(tmp_path), "postgres")


def test_part_url_of_a_part_that_the_stack_does_not_run(tmp_path: Path) -> None:
    a_stack(tmp_path)
    with pytest.raises(StackError, match="runs no valkey"):
        part_url(settings(tmp_path), "valkey")


def test_passwords_do_not_show_in_a_repr(tmp_path: Path) -> None:
    assert "pw" not in repr(a_stack(tmp_path).parts)


def test_a_failed_write_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    write_private(target, "old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shared.stack.state.os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_private(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_lock_is_held_by_one_and_says_who(tmp_path: Path) -> None:
    with stack_lock(tmp_path):
        state = a_stack(tmp_path)
        code = (
            "import sys; from pathlib import Path; from shared.stack.state import stack_lock\n"
            "try:\n    stack_lock(Path(sys.argv[1])).__enter__()\n"
            "except Exception as error:\n    print(type(error).__name__, error)"
        )
        other = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        ).stdout
    assert other.startswith("AlreadyRunning Already running")
    assert str(state.supervisor_pid) in other
    assert state.started_at in other
    assert "cragline down" in other
    with stack_lock(tmp_path):  # free again
        pass


def test_the_lock_is_not_inherited_by_a_child_that_outlives_its_holder(tmp_path: Path) -> None:
    with stack_lock(tmp_path):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        assert within_seconds(lambda: can_lock(tmp_path)), "the child kept the lock"
        assert child.poll() is None
    finally:
        child.communicate(b"\n")


def can_lock(home: Path) -> bool:
    try:
        with stack_lock(home):
            return True
    except AlreadyRunning:
        return False


def within_seconds(condition: Callable[[], bool]) -> bool:
    """The child closes what it must not keep a moment after it was started."""
    return any(condition() or time.sleep(0.05) for _ in range(100))


def unusable(folder: Path, kind: str) -> Path:
    (folder / "file").write_text("")
    (folder / "dangling").symlink_to(folder / "nowhere" / "deep")
    return {
        "a file": folder / "file",
        "a device": Path("/dev/null"),
        "below a file": folder / "file" / "home",
        "a dead link": folder / "dangling",
        "a name too long": folder / ("x" * 300),
    }[kind]


@pytest.mark.parametrize("kind", ["a file", "a device", "below a file", "a dead link", "a name too long"])
def test_a_home_that_cannot_be_one(tmp_path: Path, kind: str) -> None:
    home = unusable(tmp_path, kind)
    looks = [make_home, lambda home: stack_lock(home).__enter__()]
    if kind != "a dead link":  # for those who only look, there is nothing yet
        looks += [check_home, read_state, lambda home: part_url(settings(home), "postgres")]
    for look in looks:
        with pytest.raises(StackError, match="CRAGLINE_HOME") as caught:
            look(home)
        assert str(home) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")]
)
def test_a_home_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Root may write nearly everywhere, so the refusal is played."""

    def refuse(**_: object) -> None:
        raise error

    monkeypatch.setattr("shared.stack.state.tempfile.TemporaryFile", refuse)
    for look in (check_home, make_home, lambda home: stack_lock(home).__enter__()):
        with pytest.raises(StackError, match=f"{tmp_path} .*{error.strerror}.*CRAGLINE_HOME"):
            look(tmp_path)


@pytest.mark.parametrize("closed", [True, False])
def test_a_home_below_a_closed_folder_and_a_state_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr("shared.stack.state.os.access", lambda path, mode: not closed)
    with pytest.raises(StackError, match="CRAGLINE_HOME") as caught:
        running_stack(tmp_path)
    assert ("belongs to another user" in str(caught.value)) is not closed


def test_what_is_not_there_yet_can_be_made(tmp_path: Path) -> None:
    home = tmp_path / "a" / "b"
    assert check_home(home) is False
    make_home(home)
    assert check_home(home) is True
    assert list(home.iterdir()) == []
