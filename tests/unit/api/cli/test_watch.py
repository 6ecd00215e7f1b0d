"""Watching a batch, with the database played by a list of rows."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer
from rich.console import Console
from sqlalchemy.exc import OperationalError

from api.cli import watch
from shared import history
from shared.errors import CraglineError

ENGINE: Any = None  # the played database needs none


def row(**changes: Any) -> dict[str, Any]:
    counts = {"pending": 1, "running": 1, "answered": 0, "gave_up": 0, "failed": 0, "cancelled": 0}
    rest = {"batch_id": 7, "submitted": 2, "status": "open", "rate_per_minute": None, "eta_seconds": None}
    return counts | rest | {"cost_usd": 0, "saved_usd": 0} | changes


DONE = {"pending": 0, "running": 0, "answered": 1, "gave_up": 1}


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any]], list[float]]:
    """Play these rows (or errors), one at each look (the last one for ever); returns the pauses that were made."""
    pauses: list[float] = []
    clock = 0.0

    def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds
        pauses.append(seconds)

    monkeypatch.setattr(watch.time, "sleep", sleep)
    monkeypatch.setattr(watch.time, "monotonic", lambda: clock)

    def begin(rows: list[Any]) -> list[float]:
        ahead: Iterator[dict[str, Any] | Exception] = iter(rows)

        def progress(engine: Any, batch: int) -> dict[str, Any]:
            found = next(ahead, rows[-1])
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(history, "progress", progress)
        return pauses

    return begin


@pytest.mark.parametrize("quiet", [True, False])
def test_it_returns_when_the_batch_itself_has_ended(play: Callable[..., list[float]], quiet: bool) -> None:
    """Its last run ends a moment before it: a script must not be told `open` of a batch that has ended."""
    play([row(), row(running=0), row(**DONE), row(**DONE), row(**DONE, status="ended")])
    out = Console(file=io.StringIO(), width=80)
    found = watch.until_ended(ENGINE, 7, out, quiet=quiet)
    assert found["status"] == "ended"
    said = out.file.getvalue()  # type: ignore[attr-defined]
    assert said.splitlines()[-1:] == ([] if quiet else ["Batch 7 has ended: 1 answered, 1 gave up."])


def test_it_does_not_wait_for_ever_for_that(play: Callable[..., list[float]]) -> None:
    pauses = play([row(**DONE)])
    assert watch.until_ended(ENGINE, 7, Console(file=io.StringIO()), quiet=True)["status"] == "open"
    assert sum(pauses) == pytest.approx(watch.CLOSING_SECONDS, abs=watch.POLL_SECONDS)


def test_lines_now_and_then_and_a_hint_when_nothing_moves(play: Callable[..., list[float]]) -> None:
    looks = int(1.5 * watch.SILENT_SECONDS / watch.POLL_SECONDS)
    play([row(answered=1, pending=0)] * looks + [row(**DONE, status="ended")])
    out = Console(file=io.StringIO(), width=200)
    watch.until_ended(ENGINE, 7, out, quiet=False)
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert sum("Nothing has ended for 60 seconds" in line for line in lines) == 1
    assert lines.count("1 of 2: 1 answered") == 2  # at once, and again after a minute without a change


def test_a_line_every_few_seconds_while_something_moves(play: Callable[..., list[float]]) -> None:
    play([row(submitted=60, answered=number, pending=58 - number) for number in range(58)] + [row(**DONE)])
    out = Console(file=io.StringIO(), width=200)
    watch.until_ended(ENGINE, 7, out, quiet=False)
    lines = out.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[:3] == ["1 of 60: none ended yet", "11 of 60: 10 answered", "21 of 60: 20 answered"]


def test_ctrl_c_says_that_the_batch_goes_on() -> None:
    out = Console(file=io.StringIO(), width=200)
    with pytest.raises(typer.Exit) as ended, watch.interruptible(7, out):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert "`cragline batch watch 7`" in out.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rate_per_minute": 0}, "none ended yet"),
        ({"answered": 3, "failed": 1, "rate_per_minute": 12.4}, "3 answered, 1 failed; 12/min"),
        ({"gave_up": 2, "eta_seconds": 95, "cost_usd": 0.01234}, "2 gave up; eta 1 min 35 s; $0.0123"),
        ({"answered": 2, "cost_usd": 0.5, "saved_usd": 1.25}, "2 answered; $0.5000; $1.2500 saved"),
    ],
)
def test_describe(changes: dict[str, Any], expected: str) -> None:
    assert watch.describe(row(**changes)) == expected


def test_open_is_what_has_not_ended() -> None:
    assert watch.as_json(row(pending=3))["open"] == 4
    assert history.ended_count(row(submitted=10, pending=3)) == 6


AWAY = OperationalError("x", {}, Exception("the database system is shutting down"))
HOW = [(True, False), (False, False), (False, True)]  # quiet, a terminal


@pytest.mark.parametrize(("quiet", "terminal"), HOW)
def test_a_database_that_is_restarted_does_not_end_the_watching(
    play: Callable[..., list[float]], capsys: pytest.CaptureFixture[str], quiet: bool, terminal: bool
) -> None:
    play([AWAY, row(), AWAY, AWAY, row(**DONE), AWAY, row(**DONE, status="ended")])
    out = Console(file=io.StringIO(), width=200, force_terminal=terminal)
    assert watch.until_ended(ENGINE, 7, out, quiet=quiet)["status"] == "ended"
    told = capsys.readouterr()
    # beside a bar, stderr is led to the bar's own stream
    said = told.err + (out.file.getvalue() if terminal else "")  # type: ignore[attr-defined]
    assert said.count("The database does not answer") == 3  # once for each time that it was away
    assert told.out == ""


@pytest.mark.parametrize(("quiet", "terminal"), HOW)
def test_a_database_that_stays_away_ends_it_and_the_batch_is_named(
    play: Callable[..., list[float]], quiet: bool, terminal: bool
) -> None:
    pauses = play([row(), AWAY])
    out = Console(file=io.StringIO(), width=200, force_terminal=terminal)
    with pytest.raises(CraglineError, match=r"^Batch 7 is submitted and goes on; `cragline batch watch 7`"):
        watch.until_ended(ENGINE, 7, out, quiet=quiet)
    assert sum(pauses) > 119
