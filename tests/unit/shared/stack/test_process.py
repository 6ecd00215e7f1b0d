import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shared.errors import StackError
from shared.stack import process
from shared.stack.process import (
    Part,
    Running,
    command_of,
    describe_exit,
    free_port,
    is_same_process,
    launch,
    port_is_free,
    process_mark,
    set_aside_long_log,
    stop_all,
    stop_stranger,
    tail,
    wait_ready,
)

IGNORES_TERM = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def a_part(folder: Path, code: str, **more: Any) -> Part:
    values: dict[str, Any] = {"ready": lambda: True, "env": dict(os.environ)} | more
    return Part(
        name="thing",
        command=[sys.executable, "-c", code],
        log=folder / "logs" / "thing.log",
        cwd=folder,
        **values,
    )


def printed_pid(log: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if (text := tail(log).strip()).isdigit():
            return int(text)
        time.sleep(0.02)
    raise AssertionError("the process printed nothing")


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while process_mark(pid) is not None and time.monotonic() < deadline:
        time.sleep(0.02)
    return process_mark(pid) is None


def test_a_mark_stays_with_its_process_and_ends_with_it() -> None:
    code = "print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()  # before its program is loaded, a process has no command line
    mark = process_mark(child.pid)
    assert mark is not None
    assert is_same_process(child.pid, mark)
    assert not is_same_process(child.pid, mark + "0")
    assert not is_same_process(child.pid, None)
    assert "input()" in command_of(child.pid)
    child.communicate(b"\n")
    assert process_mark(child.pid) is None
    assert command_of(child.pid) == ""


def test_a_zombie_counts_as_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    assert gone(child.pid)  # although nobody waited for it
    assert child.wait() == 0


def test_a_taken_port_is_not_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not port_is_free(taken.getsockname()[1])


def test_free_ports_lie_below_those_of_outgoing_connections() -> None:
    port = free_port()
    assert 20_000 <= port < 32_000
    assert port_is_free(port)


def test_no_free_port_is_an_error_and_not_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "port_is_free", lambda port: False)
    with pytest.raises(StackError, match="No free port"):
        free_port()


def test_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_bytes(b"x" * 100_000 + b"\n" + b"\n".join(b"line %d" % n for n in range(50)) + b"\n\xff")
    assert tail(log, 3) == "line 48\nline 49\n\ufffd"


def test_a_long_log_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "a.log"
    set_aside_long_log(log)  # there is none
    log.write_text("12345")
    set_aside_long_log(log)
    assert log.exists()
    monkeypatch.setattr(process, "LOG_LIMIT", 4)
    set_aside_long_log(log)
    assert not log.exists()
    assert (tmp_path / "a.log.1").read_text() == "12345"


def test_exits_in_words() -> None:
    assert describe_exit(3) == "ended with exit code 3"
    assert describe_exit(-9) == "was ended by SIGKILL"
    assert describe_exit(-200) == "was ended by signal 200"


def test_a_part_that_dies_at_the_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    part = a_part(tmp_path, "print('about to fail'); raise SystemExit(7)", ready=lambda: False)
    with pytest.raises(StackError) as caught:
        wait_ready([launch(part)])
    for word in ("thing ended with exit code 7", "about to fail", str(part.log)):
        assert word in str(caught.value)


def test_a_part_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    part = a_part(tmp_path, "import time; time.sleep(600)", ready=lambda: False, start_timeout=0.2)
    running = launch(part)
    try:
        with pytest.raises(StackError, match="not ready after"):
            wait_ready([running])
    finally:
        stop_all([running])


def test_an_earlier_part_may_not_die_unseen_while_a_later_one_starts(tmp_path: Path) -> None:
    early = launch(a_part(tmp_path, "raise SystemExit(3)"))
    late = launch(a_part(tmp_path, "import time; time.sleep(600)", ready=lambda: False))
    try:
        with pytest.raises(StackError, match="exit code 3"):
            wait_ready([late], others=[early])
    finally:
        stop_all([late])


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    part = Part("thing", ["/no/such/program"], {}, tmp_path / "log", tmp_path, lambda: True)
    with pytest.raises(StackError, match="thing could not be started"):
        launch(part)


def start_stubborn(folder: Path, seconds: float) -> tuple[Running, int]:
    stops = ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0))
    running = launch(a_part(folder, IGNORES_TERM, stops=stops))
    return running, printed_pid(running.part.log)


def test_a_stubborn_part_is_killed_with_its_children(tmp_path: Path) -> None:
    running, child = start_stubborn(tmp_path, 0.2)
    stop_all([running])
    assert running.process.returncode == -signal.SIGKILL
    assert gone(child)


def test_in_a_hurry_the_grace_is_cut(tmp_path: Path) -> None:
    running, child = start_stubborn(tmp_path, 3600)
    stop_all([running], hurry=lambda: True)
    assert running.process.returncode == -signal.SIGKILL
    assert gone(child)


def test_a_part_that_ends_in_time_is_not_killed(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "print(1, flush=True)\ntime.sleep(600)"
    )
    running = launch(a_part(tmp_path, code))
    printed_pid(running.part.log)
    stop_all([running])
    assert running.process.returncode == 5


def test_a_stranger_with_another_mark_is_left_alone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    stop_stranger(child.pid, "another process", ((signal.SIGKILL, 5.0),))
    assert child.poll() is None
    mark = process_mark(child.pid)
    stop_stranger(child.pid, mark, ((signal.SIGKILL, 5.0),))
    assert child.wait(10) == -signal.SIGKILL
