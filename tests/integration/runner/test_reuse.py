"""Identical work is done once: who may take over whose result, and what two tasks do that want it at once."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shared import rework
from shared.db import transaction
from shared.errors import Postponed, TransientError
from shared.rework import Chosen
from tests.integration.runner.bench import Bench, at_once, pipeline
from tests.integration.runner.graphs import fan_out, one
from tests.integration.runner.test_ledger import EMBEDDING, LOCAL, OPENAI, WEB, Counted
from workers.models.roles import CallSpec
from workers.runner import reconcile, reuse
from workers.runner.claims import Won
from workers.runner.ledger import Ledger

MakeBench = Callable[..., Bench]
GRADER = replace(OPENAI, role="relevance_grader")
ODD = replace(OPENAI, deterministic=False)


def two_runs(bench: Bench) -> tuple[Won, Won]:
    """Two claimed runs of one batch."""
    batch = bench.submit(["First?", "Second?"])
    bench.admit()
    first, second = (
        row.id for row in bench.rows("SELECT id FROM runs WHERE batch_id = :b ORDER BY id", b=batch)
    )
    return bench.must_win(first, 1), bench.must_win(second, 1)


def a_run(bench: Bench) -> Won:
    return bench.must_win(bench.start(), 1)


def call(bench: Bench, won: Won, spec: CallSpec, perform: Counted) -> Any:
    """One call of a node that then succeeds."""
    ledger = Ledger(bench.engine, won)
    response = ledger.call(spec, perform)
    with transaction(bench.engine) as session:
        ledger.write_buffered(session)
    return response


# -- what is taken over ------------------------------------------------------------------------------------


def test_a_call_that_was_made_for_another_run_costs_nothing_and_says_from_where(bench: Bench) -> None:
    perform = Counted({"label": "relevant", "score": 0.5})
    first, second = two_runs(bench)
    ledger = Ledger(bench.engine, second)
    assert call(bench, first, OPENAI, perform) == ledger.call(OPENAI, perform) == perform.response
    with transaction(bench.engine) as session:
        ledger.write_buffered(session)
    assert perform.calls == 1
    assert ledger.usage().cost_usd is None and ledger.usage().input_tokens is None
    paid, free = bench.rows("SELECT * FROM model_calls ORDER BY id")
    assert (free.run_id, free.status, free.response) == (second.run_id, "ok", perform.response)
    assert (free.reused_from, free.cost_usd, free.input_tokens) == (paid.id, 0, None)
    assert free.saved_usd == paid.cost_usd > 0
    assert paid.reused_from is None and free.reuse_key is None, "only what was paid is taken over"
    progress = bench.one("SELECT * FROM batch_progress")
    assert (progress.cost_usd, progress.saved_usd) == (paid.cost_usd, paid.cost_usd)


@pytest.mark.parametrize(
    ("giver", "taker", "same_batch", "calls"),
    [
        ({"reuse": "off"}, {"reuse": "off"}, True, 2),
        ({"reuse": "batch"}, {"reuse": "batch"}, True, 1),
        ({"reuse": "all"}, {"reuse": "all"}, True, 1),
        ({"reuse": "batch"}, {"reuse": "batch"}, False, 2),
        ({"reuse": "all"}, {"reuse": "all"}, False, 1),
        ({"reuse": "batch"}, {"reuse": "all"}, False, 2),
        ({"reuse": "all"}, {"reuse": "batch"}, False, 2),
        ({"reuse": "all"}, {"reuse": "all", "collection": "another"}, False, 2),
        ({"reuse": "all"}, {"reuse": "all", "openai_base_url": "http://other/v1"}, False, 2),
    ],
)
def test_only_what_both_batches_share_is_taken_over(
    make_bench: MakeBench,
    giver: dict[str, Any],
    taker: dict[str, Any],
    same_batch: bool,
    calls: int,
) -> None:
    giving, taking = make_bench(**giver), make_bench(**taker)
    first, second = two_runs(giving) if same_batch else (a_run(giving), a_run(taking))
    for spec in (OPENAI, WEB):
        perform = Counted([{"title": "T"}])
        for bench, won in ((giving, first), (taking, second)):
            assert call(bench, won, spec, perform) == perform.response
        assert perform.calls == calls, spec.role


REPEATED: list[tuple[CallSpec, Any, int]] = [
    (ODD, "one of many", 2),
    (replace(GRADER, deterministic=False), {"label": "relevant"}, 1),
    (GRADER, {"label": "unparsed"}, 2),
    (OPENAI, {"passed": None}, 2),
    (OPENAI, {"passed": False}, 1),
    (OPENAI, None, 2),
    (EMBEDDING, None, 2),
    (LOCAL, [0.5], 2),
]


def test_only_what_would_come_out_again_is_taken_over(bench: Bench) -> None:
    wons = two_runs(bench)
    for number, (spec, response, calls) in enumerate(REPEATED):
        perform = Counted(response)
        for won in wons:
            assert call(bench, won, replace(spec, request={"number": number}), perform) == response
        assert perform.calls == calls, (spec.role, response)
    assert bench.rows("SELECT * FROM flights") == []


def test_who_writes_is_asked_again_in_its_own_run(bench: Bench) -> None:
    """A second draft is asked for because the first was no good."""
    won = a_run(bench)
    for role, calls in (("relevance_grader", 1), ("answer_generator", 2), ("query_rewriter", 2)):
        perform = Counted("draft")
        for step in (1, 5):
            call(bench, replace(won, step=step), replace(OPENAI, role=role), perform)
        assert perform.calls == calls, role


def test_what_is_too_old_is_done_again(bench: Bench) -> None:
    first, second = two_runs(bench)
    cases = [
        (WEB, "web_searches", "searched_at", "25 hours", 2),
        (WEB, "web_searches", "searched_at", "23 hours", 1),
        (OPENAI, "model_calls", "called_at", "31 days", 2),
        (OPENAI, "model_calls", "called_at", "29 days", 1),
    ]
    for number, (spec, table, time, age, calls) in enumerate(cases):
        perform, asked = Counted(["x"]), replace(spec, request={"query": f"number {number}"})
        call(bench, first, asked, perform)
        bench.execute(f"UPDATE {table} SET {time} = now() - CAST(:age AS interval)", age=age)
        call(bench, second, asked, perform)
        assert perform.calls == calls, age


def test_a_result_whose_batch_is_gone_is_named_still_and_paid_again(make_bench: MakeBench) -> None:
    bench = make_bench(reuse="all")
    perform = Counted("x")
    first, second, third = a_run(bench), a_run(bench), a_run(bench)
    for won in (first, second):
        call(bench, won, OPENAI, perform)
    (original,) = bench.rows("SELECT id FROM model_calls WHERE reused_from IS NULL")
    bench.execute("DELETE FROM batches WHERE id = :b", b=first.batch_id)
    assert bench.one("SELECT reused_from FROM model_calls").reused_from == original.id
    call(bench, third, OPENAI, perform)
    assert perform.calls == 2


def test_a_run_retried_from_its_start_is_not_answered_by_what_it_is_retried_for(bench: Bench) -> None:
    """Neither by its own results nor by its neighbours'; within the retry, work is done once again."""
    old, new = Counted({"label": "relevant"}), Counted({"label": "irrelevant"})
    first, second = two_runs(bench)
    for won in (first, second):
        for spec in (GRADER, WEB):
            call(bench, won, spec, old)
    assert old.calls == 2
    bench.execute("DELETE FROM claims")
    bench.execute("UPDATE runs SET status = 'gave_up', reason = 'no', ended_at = now()")
    chosen = Chosen(("gave_up",))
    rework.retry(bench.engine, first.batch_id, chosen, actor="kim", from_failed_node=False)
    bench.admit()
    for won in (first, second):
        again = bench.must_win(won.run_id, 2)
        for spec in (GRADER, WEB):
            assert call(bench, again, spec, new) == new.response
    assert new.calls == 2


# -- while it is being made ----------------------------------------------------------------------------------


def test_a_second_task_is_postponed_and_finds_the_result_when_it_comes_back(bench: Bench) -> None:
    first, second = two_runs(bench)
    late = Counted("second")

    def meanwhile() -> None:
        with pytest.raises(Postponed) as postponed:
            call(bench, second, OPENAI, late)
        assert 0.5 <= postponed.value.seconds <= 5

    assert call(bench, first, OPENAI, Counted("first", before=meanwhile)) == "first"
    assert call(bench, second, OPENAI, late) == "first" and late.calls == 0


def test_of_many_at_once_one_pays(bench: Bench) -> None:
    batch = bench.submit([f"Number {n}?" for n in range(8)])
    bench.admit()
    runs = [row.id for row in bench.rows("SELECT id FROM runs WHERE batch_id = :b", b=batch)]
    wons = [bench.must_win(run, 1) for run in runs]
    perform = Counted("x")
    results = at_once([lambda won=won: call(bench, won, OPENAI, perform) for won in wons])
    assert perform.calls == 1 and "x" in results
    assert all(result == "x" or isinstance(result, Postponed) for result in results), results
    assert [call(bench, won, OPENAI, perform) for won in wons] == ["x"] * 8 and perform.calls == 1


@pytest.mark.parametrize("error", [TransientError("busy", code="x", where="y"), Postponed(3, "rate limit")])
def test_when_the_first_fails_the_next_one_tries(bench: Bench, error: Exception) -> None:
    first, second = two_runs(bench)
    with pytest.raises(type(error)):
        call(bench, first, OPENAI, Counted(error))
    assert bench.rows("SELECT * FROM flights") == []
    assert call(bench, second, OPENAI, Counted("second")) == "second"


def test_a_killed_worker_holds_nobody_up_and_does_not_land_for_another(bench: Bench) -> None:
    """Its lease is over, and nobody has taken the claim back yet."""
    first, second = two_runs(bench)
    with reuse.once(bench.engine, first, "key", lambda _: None) as (_, flight):
        bench.execute("UPDATE flights SET since = now() - interval '3 s'")
        with pytest.raises(Postponed) as postponed:
            reuse.once(bench.engine, second, "key", lambda _: None).__enter__()
        assert postponed.value.seconds >= 1.5, "the longer it takes, the longer the pause"
        bench.lose(first.run_id)
        with reuse.once(bench.engine, second, "key", lambda _: None) as (found, _):
            assert found is None and flight is not None
            with transaction(bench.engine) as session:
                flight.land(session)
            assert bench.one("SELECT run_id FROM flights").run_id == second.run_id
    assert bench.rows("SELECT * FROM flights") == []


def test_the_next_attempt_of_a_killed_task_goes_on_at_once(bench: Bench) -> None:
    first, _ = two_runs(bench)
    bench.execute(
        "INSERT INTO flights VALUES (:k, :r, 1, 0, 1)", k=reuse.call_key(first, OPENAI, "h"), r=first.run_id
    )
    bench.lose(first.run_id)
    reconcile.take_back_lost(bench.engine)
    again = bench.must_win(first.run_id, 1)
    assert call(bench, again, OPENAI, Counted("x")) == "x"


def test_flights_that_nobody_asks_for_again_are_swept(bench: Bench) -> None:
    first, second = two_runs(bench)
    for name, won in (("alive", first), ("dead", second), ("young", second)):
        since = "now()" if name == "young" else "now() - interval '1 hour'"
        bench.execute(f"INSERT INTO flights VALUES (:k, :r, 1, 0, 1, {since})", k=name, r=won.run_id)
    bench.lose(second.run_id)
    reuse.sweep(bench.engine)
    assert {row.key for row in bench.rows("SELECT key FROM flights")} == {"alive", "young"}


# -- in the runner ---------------------------------------------------------------------------------------


def test_runs_that_wait_for_each_other_all_end_and_no_attempt_is_counted(bench: Bench) -> None:
    perform = Counted("the answer")
    bench.make_resources = lambda plan, recorder: recorder  # type: ignore[assignment, return-value]

    def node(_state: Any, recorder: Any) -> dict[str, Any]:
        return {"answer": recorder.call(OPENAI, perform), "disposition": "answered"}

    with pipeline("one", one(node)):
        batch = bench.submit([f"Number {n}?" for n in range(6)], "one")
        bench.admit()
        runs = [row.id for row in bench.rows("SELECT id FROM runs WHERE batch_id = :b", b=batch)]
        at_once([lambda run=run: bench.run(run, 1) for run in runs])
        bench.heal()
    assert perform.calls == 1
    assert {row.answer for row in bench.rows("SELECT answer FROM runs")} == {"the answer"}
    assert {row.attempt for row in bench.rows("SELECT attempt FROM transitions")} == {1}
    assert bench.one("SELECT count(*) FROM model_calls WHERE reused_from IS NOT NULL").count == 5
    assert bench.rows("SELECT * FROM lost_runs") == bench.rows("SELECT * FROM flights") == []


def test_branches_of_one_run_that_ask_the_same_share_the_verdict(bench: Bench) -> None:
    perform = Counted({"label": "relevant"})
    bench.make_resources = lambda plan, recorder: recorder  # type: ignore[assignment, return-value]

    def item(_task: Any, recorder: Any) -> dict[str, Any]:
        return {"log": [recorder.call(GRADER, perform)["label"]]}

    def last(state: Any, _recorder: Any) -> dict[str, Any]:
        return {"answer": " ".join(state["log"]), "disposition": "answered"}

    with pipeline("fan", fan_out(item, 4, last)):
        run = bench.start("fan")
        bench.run(run, 1)
        at_once([lambda branch=branch: bench.run(run, 2, branch) for branch in range(4)])
        bench.heal()
    assert bench.run_row(run).answer == "spread relevant relevant relevant relevant"
    assert perform.calls == 1
