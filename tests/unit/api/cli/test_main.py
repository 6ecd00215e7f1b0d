"""The frame around the commands: every expected error is one line and an exit code."""

import io
import subprocess
import sys
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from api.cli import main as frame
from shared.errors import CraglineError, IntakeError, UsageError

SECRET = "postgresql://me:s3cr3t@host/db"


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cragline", *words])
        with pytest.raises(SystemExit) as ended:
            frame.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def app(**_: object) -> None:
        raise error

    monkeypatch.setattr(frame, "app", app)


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (UsageError("No."), 2, "Error: No.\n"),
        (
            IntakeError("q.csv: row 3: no [bold]good[/bold]."),
            1,
            "Error: q.csv: row 3: no [bold]good[/bold].\n",
        ),
        (CraglineError("a\x1b[31m\udcff"), 1, "Error: a [31m\ufffd\n"),
        (CraglineError("x" * 300), 1, f"Error: {'x' * 300}\n"),
        (OperationalError(SECRET, {}, Exception(SECRET)), 1, "Error: The database does not answer."),
        (
            ProgrammingError("select 1", {}, psycopg.errors.UndefinedTable('relation "runs" does not exist')),
            1,
            "Error: The database has no tables yet. `cragline db upgrade` makes them.\n",
        ),
        (OSError(28, "No space left on device"), 1, "Error: No space left on device.\n"),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "Error: /x/y: Permission denied.\n"),
        (
            DBAPIError("x", {}, Exception(SECRET)),
            1,
            "Error: The database refused: postgresql://me:***@host/db\n",
        ),
    ],
)
def test_expected_errors(
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    expected: str,
) -> None:
    failing(monkeypatch, error)
    found, out, err = run()
    assert (found, out) == (code, "")
    assert err.startswith(expected)
    assert err.count("\n") == 1
    assert "s3cr3t" not in err


def test_ctrl_c_is_quiet(run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, KeyboardInterrupt())
    assert run() == (130, "", "")


def test_a_mistake_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        frame.main()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nope"], "No such command 'nope'. See `cragline --help`."),
        (["subm"], "No such command 'subm'. Did you mean 'submit'? See `cragline --help`."),
        (["--nope"], "No such option: --nope. See `cragline --help`."),
        (["batch", "show", "x"], "Invalid value for 'BATCH': "),
        (["submit"], "Missing argument 'file'. See `cragline submit --help`."),
        (["up", "--flower-port", "0"], "Invalid value for '--flower-port': "),
        (["submit", "q.csv", "--reuse", "x"], "Invalid value for '--reuse': 'x' is not one of"),
        (["batch", "list", "--limit", "9" * 20], "Invalid value for '--limit': "),
        (
            ["batch", "show", "1", "2"],
            "Got unexpected extra argument(s) (2). See `cragline batch show --help`.",
        ),
    ],
)
def test_wrong_words(run: Callable[..., tuple[int, str, str]], words: list[str], expected: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: {expected}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["batch", "show", "9" * 20], f"There is no batch {'9' * 20}."),
        (["batch", "watch", "9" * 20], f"There is no batch {'9' * 20}."),
        (["results", "9" * 20], f"There is no batch {'9' * 20}."),
        (["run", "show", "9" * 20], f"There is no run {'9' * 20}."),
        (["sql", "--file", "/nope"], "/nope: cannot be read (No such file or directory)."),
    ],
)
def test_what_is_not_there(run: Callable[..., tuple[int, str, str]], words: list[str], expected: str) -> None:
    assert run(*words) == (1, "", f"Error: {expected}\n")


def test_without_a_command_there_is_the_help(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run()
    assert code == 2
    assert "Usage: cragline" in out + err
    assert "Error" not in out + err


def test_version(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = run("--version")
    assert (code, err) == (0, "")
    assert out.startswith("cragline ")


@pytest.mark.parametrize(
    ("encoding", "expected"), [("ascii", "utf-8"), ("latin-1", "utf-8"), ("utf-8", "utf-8")]
)
def test_a_pipe_gets_utf8(monkeypatch: pytest.MonkeyPatch, encoding: str, expected: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    frame._speak_utf8()
    print("Größe")
    sys.stdout.flush()
    assert raw.getvalue().decode(expected) == "Größe\n"


def test_the_help_imports_nothing_slow() -> None:
    """A second is long for somebody who only wants to see the options."""
    slow = ("alembic", "redis", "charset_normalizer", "langgraph", "onnxruntime", "qdrant_client")
    code = f"import sys, api.cli.main; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
