"""`cragline submit` once the rows are stored: whatever fails then, the batch is named."""

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from sqlalchemy.exc import OperationalError, ProgrammingError

from api.cli import submit as command
from api.preflight import Check, Preflight
from shared import batches, history, knowledge
from shared.batches import Submitted
from shared.errors import CraglineError, NotFound, UsageError
from shared.settings import Settings

ROW = {"batch_id": 7, "pending": 1, "running": 0, "status": "open"}
SECRET = "postgresql://me:s3cr3t@host/db"
Submit = Callable[..., None]


@pytest.fixture
def submit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Submit:
    settings = Settings(home=tmp_path, _env_file=None)  # type: ignore[call-arg]
    monkeypatch.setattr(command, "get_settings", lambda: settings)
    monkeypatch.setattr(command, "get_engine", lambda: None)
    monkeypatch.setattr(command, "wake", lambda settings: True)
    monkeypatch.setattr(knowledge, "resolved", lambda engine, plan: plan)
    monkeypatch.setattr(batches, "check_collection", lambda engine, plan: None)
    monkeypatch.setattr(batches, "submit", lambda *words: Submitted(7, 1, 1, 0, 0))
    monkeypatch.setattr(command, "look", lambda *_, **__: Preflight())
    monkeypatch.setattr(history, "progress", lambda engine, batch: ROW)
    file = tmp_path / "q.txt"
    file.write_text("Who is it?\n")

    def call(**words: Any) -> None:
        defaults = {
            "pipeline": "crag",
            "column": None,
            "name": None,
            "collection": None,
            "set_": None,
            "filter_": None,
            "check": False,
            "yes": False,
        }
        command.submit(file, **(defaults | {"watch_": False, "json": True} | words))

    return call


def test_a_check_submits_nothing_and_says_by_its_exit_code_how_it_went(
    submit: Submit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(batches, "submit", raising(AssertionError("submitted")))
    for found, code in ((Preflight(), 0), (Preflight([Check("bad", "model", "no such model")]), 1)):
        monkeypatch.setattr(command, "look", lambda *_, found=found, **__: found)
        with pytest.raises(typer.Exit) as ended:
            submit(check=True)
        said = json.loads(capsys.readouterr().out)
        assert (ended.value.exit_code, said["ok"]) == (code, code == 0)


def test_what_would_fail_is_not_submitted(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "submit", raising(AssertionError("submitted")))
    bad = Preflight([Check("bad", "model", "gpt-x at OpenAI: no_model: there is none")])
    monkeypatch.setattr(command, "look", lambda *_, **__: bad)
    with pytest.raises(CraglineError, match=r"^Nothing was submitted\. model: gpt-x at OpenAI: no_model"):
        submit(yes=True)


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OperationalError(SECRET, {}, psycopg.OperationalError(SECRET)), "The database does not answer."),
        (
            ProgrammingError("x", {}, Exception(f"no {SECRET}")),
            "The database refused: no postgresql://me:***@host/db.",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device."),
        (ZeroDivisionError("x"), "This failed (ZeroDivisionError)."),
    ],
)
@pytest.mark.parametrize("where", ["progress", "print_json", "wake"])
def test_a_failure_after_the_rows_are_stored_names_the_batch(
    submit: Submit, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str, where: str
) -> None:
    monkeypatch.setattr(history if where == "progress" else command, where, raising(error))
    with pytest.raises(CraglineError) as caught:
        submit()
    assert str(caught.value) == (
        f"Batch 7 is submitted and goes on; `cragline batch watch 7` watches it. {said}"
    )


def test_a_reader_that_has_gone_and_a_ctrl_c(
    submit: Submit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "print_json", raising(BrokenPipeError()))
    with pytest.raises(BrokenPipeError):
        submit()
    assert capsys.readouterr().err.startswith("Batch 7 is submitted")
    monkeypatch.setattr(command, "wake", raising(KeyboardInterrupt()))
    with pytest.raises(typer.Exit) as ended:
        submit()
    assert ended.value.exit_code == 130
    assert "cragline batch watch 7" in capsys.readouterr().err


def test_errors_that_name_it_themselves_stay_as_they_are(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "progress", raising(NotFound("There is no batch 7.")))
    with pytest.raises(NotFound, match=r"^There is no batch 7\.$"):
        submit()


def test_a_watched_batch_is_not_asked_for_again(
    submit: Submit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The row of the end is at hand; a database that goes away right then must not cost it."""
    monkeypatch.setattr(command.watch, "until_ended", lambda *_, **__: ROW | {"status": "ended"})
    monkeypatch.setattr(history, "progress", raising(OperationalError("x", {}, Exception())))
    submit(watch_=True)
    assert json.loads(capsys.readouterr().out)["status"] == "ended"


def test_a_name_that_is_too_long_for_the_table(submit: Submit) -> None:
    submit(name="é" * 500)
    with pytest.raises(UsageError, match="--name: at most 500 characters, not 501"):
        submit(name="é" * 501)
