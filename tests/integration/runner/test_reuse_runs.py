"""Whole runs are taken over between batches that both say `all`, and the history says from where."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shared import history
from shared.db import transaction
from tests.integration.runner.bench import Bench
from tests.integration.runner.test_ledger import OPENAI, WEB, Counted
from tests.unit.workers.nodes.fakes import Script
from workers.runner.ledger import Ledger
from workers.stores.sync import bump

MakeBench = Callable[..., Bench]


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    made = make_bench(reuse="all", collection="docs")
    made.execute("INSERT INTO collections (name, embedding_model, dimension) VALUES ('docs', 'm', 3)")
    return made


def answered(bench: Bench, question: str = "How old?", **sets: Any) -> int:
    """A run that was made, or taken over: its id."""
    batch = bench.submit([question], **sets)
    bench.heal()
    return int(bench.one("SELECT id FROM runs WHERE batch_id = :b", b=batch).id)


def test_the_same_question_in_another_batch_ends_at_once_and_says_from_which_run(bench: Bench) -> None:
    first = bench.start()
    with transaction(bench.engine) as session:
        ledger = Ledger(bench.engine, bench.must_win(first, 1))
        ledger.call(OPENAI, Counted("x"))
        ledger.write_buffered(session)
    bench.lose(first)
    bench.heal()
    asked = len(bench.script.seen)
    batch = bench.submit(["  How \n old? "])
    assert bench.admit() == []
    (again,) = bench.rows("SELECT * FROM runs WHERE batch_id = :b", b=batch)
    original = bench.run_row(first)
    for name in ("status", "answer", "sources", "web_used", "notes"):
        assert getattr(again, name) == getattr(original, name), name
    assert (again.reused_from, again.collection_version) == (first, original.collection_version)
    assert again.saved_usd == bench.one("SELECT sum(cost_usd) AS s FROM model_calls").s > 0
    assert len(bench.script.seen) == asked
    (told,) = bench.transitions(again.id)
    assert (told.step, told.branch, told.attempt, told.node, told.status) == (1, 0, 1, "reuse", "succeeded")
    assert told.state_update == {
        "reused_from": {"run": first, "batch": original.batch_id},
        "disposition": "answered",
    }
    assert (told.cost_usd, told.came_from, told.goes_to) == (None, ["__start__"], ["__end__"])
    bench.admit()
    progress = bench.one("SELECT * FROM batch_progress WHERE batch_id = :b", b=batch)
    assert (progress.status, progress.answered) == ("ended", 1)
    assert (progress.cost_usd, progress.saved_usd) == (0, again.saved_usd)
    assert bench.rows("SELECT * FROM lost_runs") == []


def test_a_run_that_was_taken_over_is_no_original(bench: Bench) -> None:
    first, second = answered(bench), answered(bench)
    third = answered(bench)
    assert [bench.run_row(run).reused_from for run in (first, second, third)] == [None, first, first]
    bench.execute("DELETE FROM batches WHERE id = (SELECT batch_id FROM runs WHERE id = :r)", r=first)
    assert bench.run_row(second).reused_from == first, "what retention has dropped is named still"
    assert bench.run_row(answered(bench)).reused_from is None


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"reuse": "batch"}, {}),
    ({}, {"reuse": "batch"}),
    ({}, {"chat_model": "gpt-4.1"}),
    ({}, {"openai_base_url": "http://other/v1"}),
    ({}, {"collection": "other"}),
]


def test_what_differs_is_made(bench: Bench, make_bench: MakeBench) -> None:
    bench.execute("INSERT INTO collections (name, embedding_model, dimension) VALUES ('other', 'm', 3)")
    for number, values in enumerate(DIFFERENT):
        for settings in values:
            made = answered(
                make_bench(**{"reuse": "all", "collection": "docs"} | settings), f"Number {number}?"
            )
            assert bench.run_row(made).reused_from is None, values
    first = answered(bench)
    for question, sets in (("How old?", {"k": 2}), ("how old?", {})):
        assert bench.run_row(answered(bench, question, **sets)).reused_from is None
    assert bench.run_row(answered(bench)).reused_from == first


def test_a_collection_that_changed_is_asked_again(bench: Bench) -> None:
    def change() -> None:
        with transaction(bench.engine) as session:
            bump(session, "docs")

    first = answered(bench)
    change()
    during = bench.start(question="How old?")
    bench.run(during, 1)
    change()  # the run has seen two versions, so it counts for neither
    bench.heal()
    after = answered(bench)
    assert [bench.run_row(run).reused_from for run in (first, during, after)] == [None, None, None]
    assert [bench.run_row(run).reuse_key is None for run in (first, during, after)] == [False, True, False]
    assert bench.run_row(answered(bench)).reused_from == after


def test_an_answer_gets_old_and_one_that_may_be_from_the_web_sooner(bench: Bench) -> None:
    cases = [
        ("23 hours", {}, True),
        ("25 hours", {}, False),
        ("25 hours", {"web_search": "off"}, True),
        ("31 days", {"web_search": "off"}, False),
    ]
    for age, sets, taken in cases:
        question = f"{age} {sets}?"
        first = answered(bench, question, **sets)
        bench.execute("UPDATE runs SET ended_at = now() - CAST(:a AS interval) WHERE id = :r", a=age, r=first)
        again = answered(bench, question, **sets)
        assert bench.run_row(again).reused_from == (first if taken else None), question


def test_what_ended_by_a_fault_is_tried_again_and_what_was_given_up_is_not(
    bench: Bench, three: Script
) -> None:
    for letter in "ABC":
        three.verdicts[letter] = ("unparsed", None)  # type: ignore[index]
    odd = answered(bench)
    for letter in "ABC":
        three.verdicts[letter] = ("not_relevant", 0.1)  # type: ignore[index]
    given_up = answered(bench, web_search="off")
    assert bench.run_row(odd).reuse_key is None
    assert bench.run_row(given_up).status == "gave_up"
    assert bench.run_row(answered(bench)).reused_from is None
    again = bench.run_row(answered(bench, web_search="off"))
    assert (again.reused_from, again.status, again.reason) == (
        given_up,
        "gave_up",
        bench.run_row(given_up).reason,
    )


def test_their_places_in_the_window_are_filled_at_once(make_bench: MakeBench) -> None:
    bench = make_bench(reuse="all", collection="docs", window=2)
    bench.execute("INSERT INTO collections (name, embedding_model, dimension) VALUES ('docs', 'm', 3)")
    known = [f"Known {n}?" for n in range(7)]
    bench.submit(known)
    bench.heal()
    batch = bench.submit([*known, "New?", "Newer?", "Newest?"])
    assert len(bench.admit()) == 2
    counts = bench.one("SELECT * FROM batch_progress WHERE batch_id = :b", b=batch)
    assert (counts.answered, counts.running, counts.pending) == (7, 2, 1)


PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reuse.md").read_text(encoding="utf-8")


def asked(bench: Bench, query: str) -> list[Any]:
    """As `cragline sql` asks it: of the views, by the names of their columns."""
    found = history.query(bench.engine, query)
    return [SimpleNamespace(**dict(zip(found.columns, row, strict=True))) for row in found.rows]


def test_the_queries_of_the_handbook_say_what_was_taken_over(bench: Bench) -> None:
    taken, grades = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.M | re.S)
    first, second = bench.start(), bench.start(question="And what else?")
    for run in (first, second):
        with transaction(bench.engine) as session:
            ledger = Ledger(bench.engine, bench.must_win(run, 1))
            ledger.call(OPENAI, Counted("x"))
            ledger.call(WEB, Counted([]))
            ledger.write_buffered(session)
    saved = {row.what: row.saved_usd for row in asked(bench, taken)}
    assert set(saved) == {"call of query_rewriter", "web search"}
    assert saved["call of query_rewriter"] == bench.one("SELECT sum(saved_usd) AS s FROM model_calls").s > 0
    for run in (first, second):
        bench.lose(run)
    bench.heal()
    again = answered(bench)
    (whole,) = asked(bench, taken)
    assert (whole.what, whole.times) == ("whole run", 1)
    assert whole.saved_usd == sum(saved.values()), "what the first run had paid"
    rows = asked(bench, grades)
    assert {(row.run_id, row.reused_from, row.label) for row in rows} == {(again, first, "relevant")}
    assert len(rows) == 3
