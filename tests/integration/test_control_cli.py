"""`cragline batch pause|resume|cancel|retry|reprioritise|events` and `cragline run fork`, as a person gives them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from api.cli import batch, control, runs
from api.cli.main import app
from shared.errors import Conflict, CraglineError, NotFound, UsageError
from tests.integration.runner.bench import Bench
from tests.unit.workers.nodes.fakes import Script, document

Say = Callable[[str], str]


@pytest.fixture
def bench(database: Engine) -> Bench:
    return Bench(database, Script([document("A")], {"A": ("relevant", 0.9)}))


@pytest.fixture
def woken() -> list[Any]:
    return []


@pytest.fixture
def say(bench: Bench, woken: list[Any], monkeypatch: pytest.MonkeyPatch) -> Say:
    """What a command prints; its error is raised."""
    for module in (batch, control, runs):
        monkeypatch.setattr(module, "get_engine", lambda: bench.engine)
    monkeypatch.setattr(control, "get_settings", lambda: bench.settings)
    monkeypatch.setattr(control, "wake", woken.append)

    def run(words: str) -> str:
        result = CliRunner().invoke(app, words.split())
        if isinstance(result.exception, CraglineError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_a_batch_is_paused_resumed_cancelled_and_retried(bench: Bench, say: Say, woken: list[Any]) -> None:
    bench.submit(["a?", "b?"])
    assert say("batch pause 1 --reason dear --by kim") == (
        "Batch 1 is paused: dear. `cragline batch resume 1` goes on.\n"
    )
    assert "paused already: dear" in say("batch pause 1")
    shown = json.loads(say("batch show 1 --json"))
    assert (shown["status"], shown["pause_reason"]) == ("paused", "dear")
    assert say("batch resume 1 --by kim") == "Batch 1 goes on.\n"
    assert len(woken) == 1
    assert "was not paused" in say("batch resume 1")
    assert "it is open, and has the new caps" in say("batch resume 1 --max-tokens 1000000 --by kim")
    assert "takes them up again" in say("batch cancel 1 --by kim")
    with pytest.raises(Conflict, match=r"Batch 1 was cancelled.*retry 1 --disposition cancelled"):
        say("batch resume 1")
    assert say("batch retry 1 --disposition cancelled --dry-run") == (
        "2 questions of batch 1 would be done again (cancelled).\n"
    )
    done = json.loads(say("batch retry 1 --disposition cancelled --json --by kim"))
    assert done == {
        "batch_id": 1, "action": "retried", "status": "open", "changed": True, "runs": 2, "reason": None
    }  # fmt: skip
    bench.heal()
    acts = [(one["actor"], one["action"], one["reason"]) for one in json.loads(say("batch events 1 --json"))]
    assert acts == [
        ("unknown", "submitted", None), ("kim", "paused", "dear"), ("kim", "resumed", None),
        ("kim", "resumed", None), ("kim", "cancelled", None), ("kim", "retried", None), ("system", "ended", None),
    ]  # fmt: skip
    assert len(json.loads(say("batch events 1 --runs --json"))) == 9
    assert "paused" in say("batch events 1") and "dear" in say("batch events 1")


def test_shares_of_the_window(bench: Bench, say: Say) -> None:
    bench.submit(["a?"])
    changed = "Batch 1 has now: priority 5, weight 2.5, cap on runs in flight 3.\n"
    assert say("batch reprioritise 1 --priority 5 --weight 2.5 --max-in-flight 3") == changed
    assert "had this already" in say("batch reprioritise 1 --priority 5")
    assert "cap on runs in flight none" in say("batch reprioritise 1 --max-in-flight 0")
    assert "weight 1.0 -> 2.5, priority 0 -> 5, max_in_flight None -> 3" in say("batch events 1")
    for wrong in ("", "--weight 0", "--weight nan", "--priority 100000", "--max-in-flight -1"):
        with pytest.raises(UsageError):
            say(f"batch reprioritise 1 {wrong}")


def test_a_fork_is_a_run_of_its_own(bench: Bench, say: Say, woken: list[Any]) -> None:
    bench.submit(["a?"])
    bench.heal()
    said = say("run fork 1 --from 2 --set k=2")
    assert said == (
        "Run 2 (batch 2) goes on from step 2 of run 1: k=2. Watch it with `cragline batch watch 2`.\n"
    )
    assert len(woken) == 1
    bench.heal()
    shown = json.loads(say("run show 2 --json"))
    assert (shown["status"], shown["forked_from"], shown["timeline"][0]["step"]) == ("answered", 1, 2)
    assert "run 1, at its step 2" in say("run show 2")


@pytest.mark.parametrize(
    "verb", ["pause", "resume", "cancel", "retry", "events", "reprioritise --priority 1"]
)
def test_what_is_not_there(bench: Bench, say: Say, verb: str) -> None:
    name, _, options = verb.partition(" ")
    with pytest.raises(NotFound, match="There is no batch 9"):
        say(f"batch {name} 9 {options}")


def test_nothing_to_retry(bench: Bench, say: Say) -> None:
    bench.submit(["a?"])
    with pytest.raises(Conflict, match="nothing to retry: no run of batch 1 is failed, with error quota"):
        say("batch retry 1 --error-class quota")
    with pytest.raises(UsageError, match="--since takes a date"):
        say("batch retry 1 --since yesterday")
