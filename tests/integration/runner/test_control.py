"""Pausing, resuming and cancelling against work that is under way: nothing new is begun, nothing is lost."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.orm import Session

from shared import control
from shared.control import Done
from shared.errors import Conflict, NotFound
from tests.integration.runner import graphs
from tests.integration.runner.bench import Bench, at_once, pipeline, sound
from workers.runner import reconcile

MakeBench = Callable[..., Bench]


def batch_of(bench: Bench, run_id: int) -> int:
    return int(bench.run_row(run_id).batch_id)


def pause(bench: Bench, batch: int, reason: str | None = None) -> Done:
    return control.pause(bench.engine, batch, actor="kim", reason=reason)


def resume(bench: Bench, batch: int) -> Done:
    return control.resume(bench.engine, batch, actor="kim")


def cancel(bench: Bench, batch: int, reason: str | None = None) -> Done:
    return control.cancel(bench.engine, batch, actor="kim", reason=reason)


def status(bench: Bench, batch: int) -> str:
    return str(bench.one("SELECT status FROM batches WHERE id = :b", b=batch).status)


def due(bench: Bench) -> list[int]:
    return [publication.run_id for publication, _ in reconcile.due(bench.engine, bench.settings)]


# -- pause and resume ------------------------------------------------------------------------------------


def test_nothing_of_a_paused_batch_is_admitted_claimed_or_published(make_bench: MakeBench) -> None:
    bench = make_bench(window=1)
    batch = bench.submit(["a?", "b?"])
    (publication,) = bench.admit()
    assert pause(bench, batch, "too dear") == Done(batch, "paused", "paused", True, reason="too dear")
    assert bench.win(publication.run_id, 1) is None
    bench.overdue()
    assert due(bench) == []
    assert make_bench(window=9).admit() == []
    assert status(bench, batch) == "paused"
    row = bench.one("SELECT status, pause_reason, eta_seconds FROM batch_progress")
    assert (row.status, row.pause_reason, row.eta_seconds) == ("paused", "too dear", None)
    sound(bench)


def test_a_resumed_batch_goes_on_at_once(bench: Bench) -> None:
    run = bench.start()
    batch = batch_of(bench, run)
    pause(bench, batch)
    assert due(bench) == [], "published a moment ago, and paused"
    assert resume(bench, batch) == Done(batch, "resumed", "open", True, runs=1)
    assert due(bench) == [run]
    bench.heal()
    assert bench.run_row(run).status == "answered"
    sound(bench)


def test_a_pause_between_two_tries_is_kept_through_a_resume(bench: Bench) -> None:
    run = bench.start()
    bench.execute(
        "UPDATE claims SET not_before = now() + interval '1 hour', wake_at = now() + interval '1 hour'"
    )
    pause(bench, batch_of(bench, run))
    resume(bench, batch_of(bench, run))
    assert due(bench) == []


def test_a_node_that_runs_when_the_batch_is_paused_ends_and_the_next_one_waits(bench: Bench) -> None:
    run = bench.start()
    won = bench.must_win(run, 1)
    bench.execute(
        "UPDATE claims SET status = 'ready', lease_until = NULL, attempt = 0 WHERE run_id = :r", r=run
    )
    original = bench.make_resources

    def paused_meanwhile(plan: Any, recorder: Any) -> Any:
        pause(bench, won.batch_id)
        return original(plan, recorder)

    bench.make_resources = paused_meanwhile
    following, _ = bench.run(run, 1)
    assert following is not None and following.step == 2
    assert [row.status for row in bench.transitions(run)] == ["succeeded"]
    assert bench.run(run, 2) == (None, False)
    bench.make_resources = original
    resume(bench, won.batch_id)
    bench.heal()
    assert bench.run_row(run).status == "answered"
    sound(bench)


def test_a_paused_batch_whose_last_node_ends_is_over(bench: Bench) -> None:
    with pipeline("one", graphs.one(graphs.says(**graphs.ends()))):
        run = bench.start("one")
        batch = batch_of(bench, run)
        bench.make_resources = lambda _plan, _recorder: pause(bench, batch)  # type: ignore[assignment, return-value]
        bench.run(run, 1)
        assert status(bench, batch) == "paused"
        bench.admit()
    assert status(bench, batch) == "ended"
    with pytest.raises(Conflict, match=f"Batch {batch} has ended"):
        resume(bench, batch)


def test_what_a_paused_batch_has_in_flight_leaves_the_window_to_others(make_bench: MakeBench) -> None:
    bench = make_bench(window=3)
    first = bench.submit(["a?", "b?", "c?", "d?"])
    assert len(bench.admit()) == 3
    second = bench.submit(["e?", "f?"])
    assert bench.admit() == []
    pause(bench, first)
    assert {publication.batch_id for publication in bench.admit()} == {second}


def test_pausing_and_resuming_twice_changes_nothing_more(bench: Bench) -> None:
    batch = bench.submit(["a?"])
    pause(bench, batch, "first")
    assert pause(bench, batch, "second") == Done(batch, "paused", "paused", False, reason="first")
    results = at_once([lambda: resume(bench, batch) for _ in range(4)])
    assert sorted(done.changed for done in results) == [False, False, False, True]
    actions = bench.rows("SELECT action FROM events WHERE batch_id = :b ORDER BY id", b=batch)
    assert [row.action for row in actions] == ["submitted", "paused", "resumed"]


def test_an_act_within_a_transaction_is_part_of_it(bench: Bench) -> None:
    batch = bench.submit(["a?"])
    with Session(bench.engine) as session:
        control.pause(session, batch, actor=control.SYSTEM, reason="cap")
        session.rollback()
    assert status(bench, batch) == "open"
    assert [row.action for row in bench.rows("SELECT action FROM events")] == ["submitted"]


# -- cancel ----------------------------------------------------------------------------------------------


def test_cancelling_ends_what_is_open_and_keeps_what_has_ended(make_bench: MakeBench) -> None:
    bench = make_bench(window=2)
    batch = bench.submit(["a?", "b?", "c?", "d?"], "rag")
    first, second = (publication.run_id for publication in bench.admit())
    bench.to_step(first, 2)
    bench.run(first, 2)
    bench.must_win(second, 1)
    assert cancel(bench, batch, "wrong file") == Done(
        batch, "cancelled", "cancelled", True, runs=3, reason="cancelled by kim: wrong file"
    )
    statuses = Counter(row.status for row in bench.rows("SELECT status FROM runs"))
    assert statuses == {"answered": 1, "cancelled": 3}
    assert bench.run_row(second).reason == "cancelled by kim: wrong file"
    (row,) = bench.transitions(second)
    assert (row.status, row.attempt, row.worker, row.error) == (
        "cancelled", 1, "w", "cancelled by kim: wrong file"
    )  # fmt: skip
    assert bench.rows("SELECT * FROM claims") == []
    assert bench.one("SELECT rate_per_minute FROM batch_progress").rate_per_minute <= 60, "one in a second"
    bench.admit()
    assert status(bench, batch) == "cancelled"
    sound(bench)


def test_a_worker_that_works_on_a_cancelled_run_changes_nothing_more(bench: Bench) -> None:
    run = bench.start()
    original = bench.make_resources

    def cancelled_meanwhile(plan: Any, recorder: Any) -> Any:
        cancel(bench, batch_of(bench, run))
        return original(plan, recorder)

    bench.make_resources = cancelled_meanwhile
    assert bench.run(run, 1)[0] is None
    assert [row.status for row in bench.transitions(run)] == ["cancelled"]
    assert bench.run_row(run).status == "cancelled"
    assert bench.heal() == 1
    sound(bench)


def test_branches_and_their_join_that_end_after_a_cancel_find_nothing_to_do(bench: Bench) -> None:
    run = bench.start()
    bench.to_step(run, 2)
    original = bench.make_resources
    bench.run(run, 2, 0)

    def cancelled_meanwhile(plan: Any, recorder: Any) -> Any:
        cancel(bench, batch_of(bench, run))
        return original(plan, recorder)

    bench.make_resources = cancelled_meanwhile
    bench.run(run, 2, 1)
    bench.make_resources = original
    assert bench.run(run, 2, 2) == (None, False)
    assert bench.join(run, 2) is None
    rows = {row.branch: row for row in bench.transitions(run) if row.step == 2}
    assert [rows[branch].status for branch in range(3)] == ["succeeded", "cancelled", "skipped"]
    assert rows[2].error == "not begun: cancelled by kim"
    assert reconcile.join_overdue(bench.engine, bench.settings) == []
    sound(bench)


def test_cancelling_while_branches_end_at_the_same_moment(bench: Bench) -> None:
    """Whoever is first: a branch is succeeded or cancelled, never both, and nobody waits for anybody."""
    for _ in range(5):
        run = bench.start()
        bench.to_step(run, 2)
        batch = batch_of(bench, run)
        actions: list[Callable[[], Any]] = [lambda r=run, b=b: bench.run(r, 2, b) for b in range(3)]
        results = at_once([*actions, lambda b=batch: cancel(bench, b), lambda r=run: bench.join(r, 2)])
        assert not [result for result in results if isinstance(result, Exception)], results
        assert bench.run_row(run).status == "cancelled"
    sound(bench)


def test_two_cancels_at_once_end_a_run_once(bench: Bench) -> None:
    batch = bench.submit(["a?", "b?"])
    bench.admit()
    results = at_once([lambda: cancel(bench, batch) for _ in range(3)])
    assert sum(isinstance(result, Done) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 2
    assert len(bench.rows("SELECT * FROM events WHERE action = 'cancelled'")) == 1
    sound(bench)


def test_a_cancelled_attempt_keeps_what_its_stored_calls_cost(bench: Bench) -> None:
    run = bench.start()
    won = bench.must_win(run, 1)
    bench.execute(
        "INSERT INTO model_calls (batch_id, run_id, step, branch, attempt, node, role, provider, model,"
        " prompt_version, request_hash, status, response, input_tokens, cost_usd, duration_ms)"
        " VALUES (:b, :r, 1, 0, 1, 'n', 'r', 'openai', 'm', 'v', 'h', 'ok', '1', 7, 0.25, 1)",
        b=won.batch_id,
        r=run,
    )
    cancel(bench, won.batch_id)
    (row,) = bench.transitions(run)
    assert (row.input_tokens, row.output_tokens, float(row.cost_usd)) == (7, None, 0.25)


@pytest.mark.parametrize("act", [pause, resume, cancel])
def test_what_is_over_or_not_there_is_said_so(bench: Bench, act: Callable[[Bench, int], Done]) -> None:
    batch = bench.submit(["a?"])
    cancel(bench, batch)
    with pytest.raises(Conflict, match=f"Batch {batch} was cancelled"):
        act(bench, batch)
    with pytest.raises(NotFound, match="There is no batch 999"):
        act(bench, 999)
