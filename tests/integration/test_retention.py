"""Old months go as a whole, open batches never, and what was written stays unchangeable until then."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from api.cli import retention as command
from api.cli.main import app
from api.cli.preflight import NotConfirmed
from shared import control, retention, rework
from shared.db import transaction
from shared.errors import Conflict, CraglineError, NotFound, UsageError
from shared.rework import Chosen
from tests.integration.runner.bench import Bench, at_once
from tests.unit.workers.nodes.fakes import Script, document

JANUARY, FEBRUARY = date(2026, 1, 1), date(2026, 2, 1)
CUTOFF = datetime(2026, 6, 1, tzinfo=UTC)
Say = Callable[..., str]


@pytest.fixture
def bench(database: Engine) -> Bench:
    return Bench(database, Script([document("A")], {"A": ("relevant", 0.9)}))


@pytest.fixture
def say(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.setattr(command, "get_engine", lambda: bench.engine)

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, ["retention", *words])
        if isinstance(result.exception, CraglineError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return run


def aged(bench: Bench, month: date, questions: int = 3) -> int:
    """A batch submitted in `month`, not begun yet."""
    batch = bench.submit([f"q{number}?" for number in range(questions)])
    bench.execute(f"SELECT ensure_transitions_partition('{month}')")
    bench.execute("UPDATE batches SET month = :m, submitted_at = :m WHERE id = :b", m=month, b=batch)
    return batch


def ended(bench: Bench, month: date, questions: int = 3) -> int:
    """A batch of `month` that has ended in it."""
    batch = aged(bench, month, questions)
    bench.heal()
    at = datetime(month.year, month.month, 20, tzinfo=UTC)
    bench.execute("UPDATE batches SET ended_at = :at WHERE id = :b", at=at, b=batch)
    bench.execute("UPDATE runs SET ended_at = :at WHERE batch_id = :b", at=at, b=batch)
    return batch


def drop(bench: Bench, month: date, **values: Any) -> dict[str, int]:
    return retention.drop(bench.engine, month, CUTOFF, actor="kim", **values)


def left(bench: Bench, batch: int) -> dict[str, int]:
    tables = ("runs", "batch_rows", "transitions", "grades", "model_calls", "events")
    counts = {t: bench.one(f"SELECT count(*) AS n FROM {t} WHERE batch_id = :b", b=batch).n for t in tables}
    return {table: count for table, count in counts.items() if count}


def partitions(bench: Bench) -> set[str]:
    query = "SELECT relname FROM pg_class WHERE relname ~ '^transitions_p\\d+$'"
    return {row.relname for row in bench.rows(query)}


def fates(bench: Bench) -> dict[date, str]:
    return {month.month: month.blocked_by for month in retention.months(bench.engine, CUTOFF)}


def test_a_month_goes_with_its_batches_and_the_others_stay(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "CHUNK", 2)
    first, second = ended(bench, JANUARY), ended(bench, JANUARY)
    kept = ended(bench, FEBRUARY)
    before = left(bench, kept)
    deleted = drop(bench, JANUARY, reason="policy")
    assert (deleted["runs"], deleted["batch_rows"], deleted["batches"], deleted["grades"]) == (6, 6, 2, 6)
    assert "transitions_p202601" not in partitions(bench) and "transitions_p202602" in partitions(bench)
    for batch in (first, second):
        assert left(bench, batch) == {"events": 1}
        event = bench.one("SELECT * FROM events WHERE batch_id = :b", b=batch)
        assert (event.action, event.actor, event.reason, event.detail["runs"]) == (
            "dropped",
            "kim",
            "policy",
            3,
        )
    assert left(bench, kept) == before
    assert bench.rows("SELECT * FROM lost_runs") == []


def test_what_keeps_a_month(bench: Bench) -> None:
    ended(bench, JANUARY)
    young = ended(bench, FEBRUARY)
    assert fates(bench)[JANUARY] == fates(bench)[FEBRUARY] == ""
    bench.execute("UPDATE batches SET ended_at = now() WHERE id = :b", b=young)
    assert fates(bench)[FEBRUARY] == f"too young: batch {young}"
    still = aged(bench, JANUARY)
    assert fates(bench)[JANUARY] == f"open: batch {still}"
    control.pause(bench.engine, still, actor="kim")
    assert fates(bench)[JANUARY] == f"open: batch {still}"
    current = max(fates(bench))
    assert fates(bench)[current] == "the month is not over"
    for month in (JANUARY, FEBRUARY, current):
        with pytest.raises(Conflict, match=f"{month:%Y-%m} stays"):
            drop(bench, month)
    assert len(partitions(bench)) == 3


def test_an_open_fork_keeps_the_month_that_it_builds_on(bench: Bench) -> None:
    batch = ended(bench, JANUARY, 1)
    run = bench.one("SELECT id FROM runs WHERE batch_id = :b", b=batch).id
    fork = rework.fork(bench.engine, run, 2, bench.settings, actor="kim")
    assert fates(bench)[JANUARY] == "an open fork builds on it"
    bench.heal()
    assert bench.run_row(fork.run_id).status == "answered"
    assert fates(bench)[JANUARY] == ""
    drop(bench, JANUARY)
    assert bench.run_row(fork.run_id).status == "answered"
    with pytest.raises(Conflict, match=f"builds on run {run}, whose history was dropped"):
        rework.retry(bench.engine, fork.batch_id, Chosen(("answered",)), actor="kim")
    with pytest.raises(Conflict, match="dropped by retention"):
        rework.fork(bench.engine, fork.run_id, 2, bench.settings, actor="kim")


def test_the_history_goes_on_refusing_to_be_deleted(bench: Bench) -> None:
    ended(bench, JANUARY)
    ended(bench, FEBRUARY)
    drop(bench, JANUARY)
    for statement in ("DELETE FROM transitions", "DELETE FROM transitions_p202602", "TRUNCATE transitions"):
        with pytest.raises(Exception, match="append-only"):
            bench.execute(statement)


def test_killed_in_the_middle_it_goes_on_from_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ended(bench, JANUARY)
    run = bench.one("SELECT id FROM runs WHERE batch_id = :b LIMIT 1", b=batch).id

    def killed(_engine: Engine, table: str, *_: Any) -> int:
        if table == "batch_rows":
            raise KeyboardInterrupt
        return real(_engine, table, *_)

    real = retention._delete_chunks
    monkeypatch.setattr(retention, "_delete_chunks", killed)
    with pytest.raises(KeyboardInterrupt):
        drop(bench, JANUARY)
    monkeypatch.undo()
    assert bench.rows("SELECT * FROM lost_runs") == []
    for act in (
        lambda: rework.retry(bench.engine, batch, Chosen(("answered",)), actor="lee"),
        lambda: rework.fork(bench.engine, run, 1, bench.settings, actor="lee"),
    ):
        with pytest.raises(Conflict, match="being dropped"):
            act()
    drop(bench, JANUARY)
    assert left(bench, batch) == {"events": 1}
    assert fates(bench) == {max(fates(bench)): "the month is not over"}


def test_a_retry_at_the_same_moment_keeps_the_month_or_finds_it_gone(bench: Bench) -> None:
    batch = ended(bench, JANUARY)
    chosen = Chosen(("answered",))
    results = at_once(
        [lambda: drop(bench, JANUARY), lambda: rework.retry(bench.engine, batch, chosen, actor="lee")]
    )
    assert sum(isinstance(result, (Conflict, NotFound)) for result in results) == 1, results
    gone = "transitions_p202601" not in partitions(bench)
    assert gone == isinstance(results[0], dict)
    assert left(bench, batch) == {"events": 1} if gone else left(bench, batch)["runs"] == 3
    assert bench.rows("SELECT * FROM lost_runs") == []


def test_a_reader_that_stays_keeps_it_waiting_only_shortly(bench: Bench) -> None:
    batch = ended(bench, JANUARY)
    with transaction(bench.engine) as session:
        session.execute(text("SELECT count(*) FROM transitions"))
        with pytest.raises(CraglineError, match="Try again later"):
            drop(bench, JANUARY)
    assert left(bench, batch)["runs"] == 3
    assert bench.rows("SELECT * FROM events WHERE action = 'dropped'") == []


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_everything_of_a_batch_is_archived_first(bench: Bench, say: Say, tmp_path: Path, form: str) -> None:
    batch = ended(bench, JANUARY)
    rows = left(bench, batch)
    words = ("--before", "2026-06-01", "--archive", str(tmp_path), "--format", form, "--yes", "--json")
    assert json.loads(say(*words))["dropped"]["2026-01"]["runs"] == 3
    place = tmp_path / f"batch-{batch}"
    counts = json.loads((place / "export.json").read_text())["rows"]
    assert {table: counts[table] for table in ("runs", "transitions", "grades", "events")} == {
        table: rows[table] for table in ("runs", "transitions", "grades", "events")
    }
    assert (place / f"transitions.{form}").stat().st_size > 0
    event = bench.one("SELECT detail FROM events WHERE batch_id = :b", b=batch)
    assert event.detail["archive"] == str(place)


def test_an_archive_that_cannot_be_written_drops_nothing(bench: Bench, say: Say, tmp_path: Path) -> None:
    batch = ended(bench, JANUARY)
    before = left(bench, batch)
    (tmp_path / "file").write_text("")
    with pytest.raises(CraglineError, match="cannot be written"):
        say("--before", "2026-06-01", "--archive", str(tmp_path / "file"), "--yes")
    assert left(bench, batch) == before and fates(bench)[JANUARY] == ""


def test_what_is_said_and_asked(bench: Bench, say: Say) -> None:
    ended(bench, JANUARY)
    shown = say("--before", "2026-06-01", "--dry-run")
    assert "2026-01" in shown and "goes" in shown and "stays: the month is not over" in shown
    with pytest.raises(NotConfirmed, match="1 month with 1 batch would go"):
        say("--before", "2026-06-01")
    assert "Nothing is old enough" in say("--before", "2026-01-10")
    assert "2026-01: 1 batch with 3 questions dropped." in say("--older-than", "90d", "--yes")
    tomorrow = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()
    for wrong in (
        (),
        ("--older-than", "1d", "--before", "2026-01-01"),
        ("--before", tomorrow),
        ("--before", "x"),
    ):
        with pytest.raises(UsageError):
            say(*wrong)
