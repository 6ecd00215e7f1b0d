"""Only one wins a claim, only its owner gives it back, and whoever comes late changes nothing."""

from collections import Counter

import pytest

from shared.db import transaction
from shared.statuses import TransitionStatus
from tests.integration.runner.bench import Bench, at_once
from workers.runner import claims, reconcile
from workers.runner.claims import LostClaim, Won


def test_only_one_of_many_concurrent_threads_wins(bench: Bench) -> None:
    run = bench.start()
    results = at_once([lambda n=n: bench.win(run, 1, worker=f"w{n}") for n in range(8)])
    winners = [found for found in results if isinstance(found, Won)]
    assert len(winners) == 1 and Counter(map(type, results)) == {Won: 1, type(None): 7}
    (claim,) = bench.claims(run)
    assert (claim.status, claim.worker, claim.attempt) == ("running", winners[0].worker, 1)
    assert claim.lease_until is not None and claim.started_at == winners[0].started_at


def test_a_doubled_message_runs_the_node_once(bench: Bench) -> None:
    run = bench.start("rag")
    results = at_once([lambda: bench.run(run, 1) for _ in range(4)])
    assert [over for _, over in results].count(True) == 1
    assert len(bench.script.asked("retriever")) == 1
    assert [row.status for row in bench.transitions(run)] == ["succeeded"]
    assert bench.run(run, 1) == (None, False), "and a late one finds nothing to do"


@pytest.mark.parametrize(("step", "branch"), [(0, 0), (2, 0), (1, 1)])
def test_a_wrong_step_or_branch_finds_nothing(bench: Bench, step: int, branch: int) -> None:
    run = bench.start()
    assert bench.win(run, step, branch) is None
    assert bench.win(run + 1000, 1) is None
    assert bench.claims(run)[0].status == "ready"


def test_a_claim_is_not_won_before_its_time(bench: Bench) -> None:
    run = bench.start()
    bench.execute("UPDATE claims SET not_before = now() + interval '1 hour'")
    assert bench.win(run, 1) is None
    bench.execute("UPDATE claims SET not_before = now() - interval '1 ms'")
    assert bench.win(run, 1) is not None


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE runs SET status = 'cancelled', ended_at = now()",
        "UPDATE runs SET status = 'failed', error = 'e', ended_at = now()",
        "UPDATE runs SET step = 2",
    ],
)
def test_a_run_that_has_ended_or_moved_on_has_nothing_to_claim(bench: Bench, change: str) -> None:
    run = bench.start()
    bench.execute(change)
    assert bench.win(run, 1) is None


def test_a_claim_holds_what_the_node_needs(bench: Bench) -> None:
    run = bench.start(question="Why?", k=3)
    won = bench.must_win(run, 1)
    assert (won.node, won.width, won.attempt, won.argument) == ("retrieve", 1, 1, None)
    assert won.came_from == ["__start__"] and won.plan.params["k"] == 3
    assert won.question == "Why?" and not won.last_attempt


@pytest.mark.parametrize("way", ["taken by another", "given back already", "run ended"])
def test_an_owner_whose_claim_is_gone_changes_nothing(bench: Bench, way: str) -> None:
    run = bench.start()
    old = bench.must_win(run, 1)
    if way == "given back already":
        with transaction(bench.engine) as session:
            claims.mark_done(session, old, [], 5)
    elif way == "run ended":
        bench.execute("DELETE FROM claims")
    else:
        bench.lose(run)
        assert reconcile.take_back_lost(bench.engine) == 1
        assert bench.must_win(run, 1).attempt == 2
    before = (bench.claims(run), bench.transitions(run))
    for give_back in (
        lambda session: claims.mark_done(session, old, [], 5),
        lambda session: claims.mark_failed(session, old),
        lambda session: claims.mark_for_retry(session, old, 1),
        lambda session: claims.mark_lost(session, old),
    ):
        with pytest.raises(LostClaim), transaction(bench.engine) as session:
            give_back(session)
    assert (bench.claims(run), bench.transitions(run)) == before


def test_renewing_extends_only_the_claims_that_are_still_held(bench: Bench) -> None:
    first, second, third = (bench.start() for _ in range(3))
    held = [bench.must_win(run, 1) for run in (first, second, third)]
    bench.execute("UPDATE claims SET lease_until = now() + interval '1 s'")
    bench.lose(second)
    reconcile.take_back_lost(bench.engine)
    bench.must_win(second, 1)
    with transaction(bench.engine) as session:
        claims.mark_failed(session, held[2])
    before = {run: bench.claims(run)[0].lease_until for run in (first, second, third)}
    with transaction(bench.engine) as session:
        claims.renew(session, held, 500)
    after = {run: bench.claims(run)[0].lease_until for run in (first, second, third)}
    assert after[first] > before[first]
    assert after[second] == before[second], "the old owner does not renew the new one's lease"
    assert after[third] is None
    with transaction(bench.engine) as session:
        claims.renew(session, [], 500)


def test_the_record_of_an_attempt(bench: Bench) -> None:
    run = bench.start()
    won = bench.must_win(run, 1)
    with transaction(bench.engine) as session:
        claims.add_transition(
            session,
            won,
            TransitionStatus.SUCCEEDED,
            goes_to=["decide"],
            state_update={"query": "a\x00\ud800"},
            usage=claims.Usage(10, None, 0.00012345),
        )
    (row,) = bench.transitions(run)
    assert (row.node, row.attempt, row.worker, row.task_id) == ("retrieve", 1, "w", "t")
    assert row.state_update == {"query": "a\ufffd\ufffd"} and row.goes_to == ["decide"]
    assert (row.input_tokens, row.output_tokens, float(row.cost_usd)) == (10, None, 0.00012345)
    assert row.ended_at >= row.started_at and row.duration_ms >= 0
    assert row.duration_ms == pytest.approx((row.ended_at - row.started_at).total_seconds() * 1000, abs=0.01)


def test_what_an_attempt_has_not_is_null_and_not_the_word_null(bench: Bench) -> None:
    """SQL asks `IS NULL`, and a jsonb `null` is not."""
    run = bench.start()
    won = bench.must_win(run, 1)
    with transaction(bench.engine) as session:
        claims.add_transition(session, won, TransitionStatus.LOST, error_text="lost")
    assert bench.one("SELECT state_update IS NULL AS yes FROM transitions").yes
    assert bench.one("SELECT argument IS NULL AND goes_to IS NULL AS yes FROM claims").yes
