"""What the queue has lost is healed from the rows alone, and nothing is healed that is not ill."""

from typing import Any

import pytest

from shared import heartbeats
from shared.db import transaction
from tests.integration.runner.bench import Bench, at_once, pipeline
from tests.integration.runner.graphs import ends, fan_out, one, says
from workers.runner import claims, reconcile
from workers.runner.advance import Publication


def lose_an_attempt(bench: Bench, run: int, step: int = 1, branch: int = 0) -> None:
    bench.must_win(run, step, branch)
    bench.lose(run)
    assert reconcile.take_back_lost(bench.engine) == 1


# -- lost workers -----------------------------------------------------------------------------------------


def test_a_claim_with_a_living_lease_is_left_alone(bench: Bench) -> None:
    run = bench.start()
    bench.must_win(run, 1)
    assert reconcile.take_back_lost(bench.engine) == 0
    assert bench.claims(run)[0].status == "running"


def test_a_lost_attempt_is_recorded_and_given_to_the_next(bench: Bench) -> None:
    run = bench.start()
    lose_an_attempt(bench, run)
    (row,) = bench.transitions(run)
    assert (row.status, row.attempt, row.node, row.worker) == ("lost", 1, "retrieve", "w")
    assert row.error == "lost: worker w was not heard of" and row.goes_to == []
    (claim,) = bench.claims(run)
    assert (claim.status, claim.attempt, claim.lost, claim.lease_until) == ("ready", 1, 1, None)
    assert reconcile.take_back_lost(bench.engine) == 0
    assert bench.run(run, 1)[1]
    assert [(row.status, row.attempt) for row in bench.transitions(run)] == [("lost", 1), ("succeeded", 2)]


def test_leases_that_ran_out_while_nobody_reconciled_are_prolonged_once(bench: Bench) -> None:
    run = bench.start()
    bench.must_win(run, 1)
    heartbeats.note(bench.engine, heartbeats.RECONCILER)
    bench.lose(run)
    assert reconcile.spare_the_living(bench.engine, bench.settings) == 0, "it was looked at all the time"
    bench.execute("UPDATE heartbeats SET at = now() - interval '21 s'")
    assert reconcile.spare_the_living(bench.engine, bench.settings) == 1
    assert reconcile.take_back_lost(bench.engine) == 0
    bench.lose(run)
    assert reconcile.spare_the_living(bench.engine, bench.settings) == 0
    assert reconcile.take_back_lost(bench.engine) == 1


def test_a_run_that_nobody_can_go_on_with_does_not_stand_before_the_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "SWEEP", 1)
    odd, usual, over = bench.start(), bench.start(), bench.start()
    for run in (odd, usual):
        bench.must_win(run, 1)
        bench.lose(run)
    bench.to_step(over, 2)
    for branch in range(4):
        bench.run(over, 2, branch)
    bench.overdue()
    unreadable = """UPDATE batches SET plan = plan || '{"provider": "oracle"}'
                     WHERE id IN (SELECT batch_id FROM runs WHERE id = ANY(:runs))"""
    bench.execute(unreadable, runs=[odd, over])
    assert sorted(reconcile.take_back_lost(bench.engine) for _ in range(3)) == [0, 0, 1]
    assert [(row.status, row.attempt) for row in bench.transitions(usual)] == [("lost", 1)]
    assert bench.claims(odd)[0].status == "running", "as it was, for a version that can read it"
    assert reconcile.join_overdue(bench.engine, bench.settings) == []
    assert bench.one(
        "SELECT min(wake_at) > now() + interval '50 s' AS left FROM claims WHERE run_id = :r", r=over
    ).left
    bench.execute("""UPDATE batches SET plan = plan || '{"provider": "local"}'""")
    bench.lose(odd)
    bench.heal()
    assert {bench.run_row(run).status for run in (odd, usual, over)} == {"answered"}


def test_the_last_attempt_that_is_lost_fails_the_run(make_bench: Any) -> None:
    bench = make_bench(max_attempts=2)
    run = bench.start()
    lose_an_attempt(bench, run)
    lose_an_attempt(bench, run)
    assert [row.status for row in bench.transitions(run)] == ["lost", "failed"]
    bench.overdue()
    assert reconcile.join_overdue(bench.engine, bench.settings) == []
    row = bench.run_row(run)
    assert row.status == "failed"
    assert row.error == "retrieve: lost: worker w was not heard of, at the last of 2 attempts"
    assert bench.claims(run) == []
    assert bench.run(run, 1) == (None, False)


def test_a_branch_lost_for_good_fails_the_run_and_spares_what_nobody_began(make_bench: Any) -> None:
    bench = make_bench(max_attempts=1)
    run = bench.start()
    bench.run(run, 1)
    bench.run(run, 2, 0)
    lose_an_attempt(bench, run, 2, 1)
    assert [(row.branch, row.status) for row in bench.transitions(run) if row.step == 2] == [
        (0, "succeeded"),
        (1, "failed"),
        (2, "skipped"),
    ]
    bench.overdue()
    reconcile.join_overdue(bench.engine, bench.settings)
    assert bench.run_row(run).error.startswith("grade_document: lost: worker w")
    assert len(bench.script.asked("grader")) == 1


def test_two_reconcilers_at_once_take_each_claim_back_once(bench: Bench) -> None:
    runs = [bench.start() for _ in range(6)]
    for run in runs:
        bench.must_win(run, 1)
        bench.lose(run)
    taken = at_once([lambda: reconcile.take_back_lost(bench.engine) for _ in range(3)])
    assert sum(taken) == 6
    assert len(bench.rows("SELECT * FROM transitions")) == 6


def test_a_worker_that_ends_while_its_claim_is_taken_back_is_counted_one_way_only(bench: Bench) -> None:
    """Whoever comes first decides: either the result counts, or the attempt is lost; never both."""
    for _ in range(5):
        run = bench.start("rag")

        def slow(query: str, k: int, run: int = run) -> Any:
            bench.lose(run)
            return []

        resources = bench.script.resources()
        object.__setattr__(resources, "retriever", type("Slow", (), {"retrieve": staticmethod(slow)})())
        bench.make_resources = lambda plan, recorder, made=resources: made
        at_once([lambda run=run: bench.run(run, 1), lambda: reconcile.take_back_lost(bench.engine)])
        reconcile.take_back_lost(bench.engine)
        statuses = [row.status for row in bench.transitions(run)]
        step = bench.run_row(run).step
        assert (statuses, step) in ((["succeeded"], 2), (["lost"], 1)), statuses
        assert bench.rows("SELECT * FROM lost_runs") == []


# -- lost messages ----------------------------------------------------------------------------------------


def test_a_claim_that_nobody_took_in_time_is_published_again_alone(bench: Bench) -> None:
    run = bench.start()
    bench.run(run, 1)
    assert reconcile.due(bench.engine, bench.settings) == [], "published a moment ago"
    bench.overdue()
    found = reconcile.due(bench.engine, bench.settings)
    batch = bench.run_row(run).batch_id
    expected = Publication("crag", batch, run, 2, ["grade_document"] * 3)
    assert sorted(found, key=lambda item: item[1]) == [(expected, 0), (expected, 1), (expected, 2)]
    assert reconcile.due(bench.engine, bench.settings) == []


def test_the_pause_between_publications_grows_up_to_a_limit(make_bench: Any) -> None:
    bench = make_bench(republish_seconds=10)
    bench.start()
    pauses = []
    for _ in range(9):
        bench.overdue()
        assert len(reconcile.due(bench.engine, bench.settings)) == 1
        pauses.append(float(bench.one("SELECT extract(epoch FROM wake_at - now()) AS s FROM claims").s))
    rounded = [int(round(pause / 10) * 10) for pause in pauses]
    assert rounded == [20, 40, 80, 160, 320, 600, 600, 600, 600]


def test_a_claim_published_a_thousand_times_is_still_published(bench: Bench) -> None:
    """A queue without workers for a week: one such claim must not stop the reconciler for all others."""
    run = bench.start()
    bench.execute("UPDATE claims SET publishes = 5000")
    bench.overdue()
    assert [publication.run_id for publication, _ in reconcile.due(bench.engine, bench.settings)] == [run]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET status = 'cancelled', ended_at = now()",
        "UPDATE claims SET status = 'running', lease_until = now() + interval '1 min'",
        "UPDATE claims SET status = 'done'",
    ],
)
def test_what_nobody_waits_for_is_not_published(bench: Bench, change: str) -> None:
    bench.start()
    bench.overdue()
    bench.execute(change)
    assert reconcile.due(bench.engine, bench.settings) == []


def test_two_reconcilers_at_once_publish_a_claim_once(bench: Bench) -> None:
    bench.submit([f"{n}?" for n in range(20)])
    bench.admit()
    bench.overdue()
    found = at_once([lambda: reconcile.due(bench.engine, bench.settings) for _ in range(3)])
    assert sorted(publication.run_id for part in found for publication, _ in part) == sorted(
        row.id for row in bench.rows("SELECT id FROM runs")
    )


# -- lost joins -------------------------------------------------------------------------------------------


def test_a_join_whose_chord_never_came_is_made_once_it_is_overdue(bench: Bench) -> None:
    run = bench.start()
    bench.run(run, 1)
    for branch in range(3):
        bench.run(run, 2, branch)
    assert reconcile.join_overdue(bench.engine, bench.settings) == [], "the chord's own body is awaited"
    bench.overdue()
    (publication,) = reconcile.join_overdue(bench.engine, bench.settings)
    assert (publication.run_id, publication.step, publication.nodes) == (run, 3, ["decide"])
    bench.overdue()
    assert reconcile.join_overdue(bench.engine, bench.settings) == []


def test_an_unfinished_fan_out_is_not_joined(bench: Bench) -> None:
    run = bench.start()
    bench.run(run, 1)
    bench.run(run, 2, 0)
    bench.must_win(run, 2, 1)
    bench.overdue()
    assert reconcile.join_overdue(bench.engine, bench.settings) == []
    assert bench.run_row(run).step == 2


def test_a_join_that_breaks_fails_its_run_and_not_the_others(bench: Bench) -> None:
    """Two branches write a key without a reducer: only the join can see it, and it must not try for ever."""
    broken = fan_out(says(last="mine"), 2, says(**ends()))
    healthy = fan_out(says(log=["x"]), 2, says(**ends()))
    with pipeline("broken", broken), pipeline("healthy", healthy):
        runs = [bench.start(name) for name in ("broken", "healthy", "broken")]
        bench.heal(rounds=20)
        rows = [bench.run_row(run) for run in runs]
    assert [row.status for row in rows] == ["failed", "answered", "failed"]
    assert "'last'" in rows[0].error
    assert bench.rows("SELECT * FROM claims") == []


# -- altogether -------------------------------------------------------------------------------------------


def test_without_any_message_the_rows_alone_bring_every_run_to_its_end(bench: Bench) -> None:
    crag = bench.submit([f"{n}?" for n in range(4)])
    refined = bench.submit([f"{n}?" for n in range(3)], rule="confidence")
    rag = bench.submit([f"{n}?" for n in range(3)], "rag")
    bench.heal()
    ended = bench.rows("SELECT batch_id, answered, submitted, status FROM batch_progress ORDER BY batch_id")
    assert [(row.batch_id, row.answered, row.status) for row in ended] == [
        (crag, 4, "ended"),
        (refined, 3, "ended"),
        (rag, 3, "ended"),
    ]
    for table in ("lost_runs", "claims"):
        assert bench.rows(f"SELECT * FROM {table}") == []
    assert bench.one("SELECT count(*) AS n FROM grades").n == 3 * 7
    assert not bench.rows("SELECT 1 FROM transitions WHERE status <> 'succeeded'")


def test_a_run_of_one_node_is_healed_too(bench: Bench) -> None:
    with pipeline("toy", one(says(**ends()))):
        run = bench.start("toy")
        lose_an_attempt(bench, run)
        bench.heal()
        assert bench.run_row(run).status == "answered"


# -- redis has forgotten its messages -----------------------------------------------------------------------


def test_what_is_open_is_due_at_once_when_redis_was_emptied(bench: Bench) -> None:
    run = bench.start()
    assert reconcile.due(bench.engine, bench.settings) == []
    assert reconcile.make_all_due(bench.engine) == 1
    (found,) = reconcile.due(bench.engine, bench.settings)
    assert (found[0].run_id, found[0].step, found[1]) == (run, 1, 0)


def test_a_pause_before_a_retry_is_kept(bench: Bench) -> None:
    run = bench.start()
    with transaction(bench.engine) as session:
        claims.mark_for_retry(session, bench.must_win(run, 1), pause=60)
    assert reconcile.make_all_due(bench.engine) == 0
    assert reconcile.due(bench.engine, bench.settings) == []


def test_a_join_that_is_not_overdue_is_made_at_once(make_bench: Any) -> None:
    bench = make_bench(heartbeat_seconds=60, lease_seconds=120)
    run = bench.start()
    bench.run(run, 1)
    width = len(bench.claims(run))
    for branch in range(width):
        bench.run(run, 2, branch)
    assert width > 1
    assert reconcile.join_overdue(bench.engine, bench.settings) == []
    assert reconcile.make_all_due(bench.engine) == width
    (following,) = reconcile.join_overdue(bench.engine, bench.settings)
    assert (following.run_id, following.step) == (run, 3)
