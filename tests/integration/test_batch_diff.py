"""`cragline batch diff` and `cragline what-if`: what differs, counted and named."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from api.cli import compare as commands
from api.cli.main import app
from shared import compare
from shared.plan import Plan
from shared.stack.testing import Servers
from tests.conftest import own_database
from tests.integration.runner.bench import Bench
from tests.unit.workers.nodes.fakes import Script, document
from workers.models.roles import CallRecorder, CallResult, CallSpec
from workers.nodes.resources import Resources

# What each batch finds relevant for a question; the second batch pays for what the first had free.
RELEVANT = {
    "same?": ("AB", "AB"),
    "worse?": ("AB", ""),
    "other document?": ("A", "B"),
    "graded?": ("AB", "A"),
}


class Told(Bench):
    which = 0

    def make(self, plan: Plan, recorder: CallRecorder) -> Resources:
        won = recorder._won  # type: ignore[attr-defined]
        question = " ".join(won.question.split())
        relevant = RELEVANT.get(question, ("A", "A"))[self.which]
        self.script.verdicts = {
            letter: ("relevant", 0.9) if letter in relevant else ("not_relevant", 0.1) for letter in "AB"
        }
        if self.which == 1 and won.node == "decide" and question == "same?":
            spec = CallSpec("answer_generator", "openai", "gpt-4.1-mini", "v", {"question": question})
            recorder.call(spec, lambda: CallResult("x", 1000, 0))
        return self.script.resources()


@pytest.fixture(scope="module")
def engine(servers: Servers) -> Iterator[Engine]:
    with own_database(servers) as made:
        yield made


@pytest.fixture(scope="module")
def pair(engine: Engine) -> tuple[int, int]:
    bench = Told(engine, Script([document("A"), document("B")]))
    a = bench.submit(
        ["same?", "worse?", "other  document?", "graded?", "only in A?"],
        rule="none_relevant",
        web_search="off",
    )
    bench.heal()
    bench.which = 1
    b = bench.submit(
        ["graded?", "other document?", " same?", "worse?", "only in B?"],
        rule="none_relevant",
        web_search="off",
    )
    bench.heal()
    return a, b


def run(monkeypatch: pytest.MonkeyPatch, engine: Engine, *words: object) -> str:
    monkeypatch.setattr(commands, "get_engine", lambda: engine)
    done = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_every_question_is_matched_and_what_differs_is_named(engine: Engine, pair: tuple[int, int]) -> None:
    rows = {row["question"]: row for row in compare.batch_diff(engine, *pair)}
    assert {question: row["changed"] for question, row in rows.items()} == {
        "same?": ["cost"],
        "worse?": ["disposition", "answer", "sources", "grades"],
        "other  document?": ["answer", "sources", "grades"],
        "graded?": ["answer", "sources", "grades"],
        "only in A?": ["only_in_a"],
        "only in B?": ["only_in_b"],
    }
    worse = rows["worse?"]
    assert (worse["disposition_a"], worse["disposition_b"], worse["grades_changed"]) == (
        "answered",
        "gave_up",
        2,
    )
    assert (worse["sources_a"], worse["sources_b"]) == (["A.md", "B.md"], [])
    assert rows["graded?"]["grades_changed"] == 1
    assert rows["only in A?"]["run_b"] is None and rows["only in B?"]["run_a"] is None


def test_a_batch_beside_itself_does_not_differ(engine: Engine, pair: tuple[int, int]) -> None:
    rows = list(compare.batch_diff(engine, pair[0], pair[0]))
    assert len(rows) == 5
    assert [row["changed"] for row in rows] == [[]] * 5


def test_the_command_counts_and_shows(
    engine: Engine, pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    told: dict[str, Any] = json.loads(run(monkeypatch, engine, "batch", "diff", a, b, "--json"))
    assert (told["counts"]["in_both"], told["counts"]["only_in_a"], told["counts"]["only_in_b"]) == (4, 1, 1)
    assert told["counts"]["disposition_changed"] == 1
    assert told["counts"]["moves"] == {"answered -> gave_up": 1}
    assert {row["question"] for row in told["rows"]} >= {"worse?", "only in A?"}
    assert "same?" not in {row["question"] for row in told["rows"]}
    everything = list(
        csv.DictReader(io.StringIO(run(monkeypatch, engine, "batch", "diff", a, b, "--csv", "--all")))
    )
    assert len(everything) == 6
    assert everything[1]["changed"] == '["disposition", "answer", "sources", "grades"]'
    shown = run(monkeypatch, engine, "batch", "diff", a, b, "--limit", 1)
    assert "disposition answered -> gave_up" in shown
    assert "worse?" in shown and "only in A?" not in shown


def test_what_if_at_the_command_line(
    engine: Engine, pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = pair
    words = ("what-if", a, "--set", "rule=ratio:0.6", "--set", "web_search=on")
    told = json.loads(run(monkeypatch, engine, *words, "--json"))
    assert (told["summary"]["runs"], told["summary"]["other_way"]) == (5, 2)
    assert told["summary"]["ways"] == [
        {"before": "generate", "now": "rewrite_query > web_search > generate", "runs": 2}
    ]
    assert {row["node"] for row in told["node_costs"]} >= {"retrieve", "grade_document", "decide", "generate"}
    shown = run(monkeypatch, engine, *words)
    assert "2 of 5 runs would have taken another way." in shown
    assert "The change of the cost cannot be estimated from this batch." in shown
    assert "Not known, for 2 runs: what the web search would have found." in shown
    rows = list(csv.DictReader(io.StringIO(run(monkeypatch, engine, *words, "--csv"))))
    assert [row["other_way"] for row in rows].count("true") == 2
