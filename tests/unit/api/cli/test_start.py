"""The installed command's entry, interrupted while it imports."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Stands in for the imports: says that it has begun, and takes its time.
SLOW = "import sys, time\nprint('importing', flush=True)\ntime.sleep(60)\n"
ENTRY = """
import signal, sys
signal.signal(signal.SIGINT, {handler})
import api.cli, importlib.util
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "api.cli.main":
            return importlib.util.spec_from_file_location(name, {slow!r})
sys.meta_path.insert(0, Finder())
from api.cli.start import main
main()
"""


def start(folder: Path, slow: str, handler: str = "signal.default_int_handler") -> "subprocess.Popen[bytes]":
    (folder / "slow.py").write_text(slow)
    code = ENTRY.format(slow=str(folder / "slow.py"), handler=handler)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_ctrl_c_while_modules_are_imported_is_quiet(tmp_path: Path) -> None:
    process = start(tmp_path, SLOW)
    assert process.stdout is not None and process.stdout.readline() == b"importing\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "signal.SIG_IGN"])
def test_the_command_itself_finds_what_was_set_before(tmp_path: Path, handler: str) -> None:
    """An interrupt that was ignored (a job in the background) stays ignored; else Python's own is back."""
    process = start(
        tmp_path, "def main():\n import signal\n print(repr(signal.getsignal(signal.SIGINT)))\n", handler
    )
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")
    assert (b"SIG_IGN" if handler == "signal.SIG_IGN" else b"default_int_handler") in out


def test_one_in_the_command_that_nobody_caught(tmp_path: Path) -> None:
    process = start(tmp_path, "def main():\n raise KeyboardInterrupt\n")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"")
