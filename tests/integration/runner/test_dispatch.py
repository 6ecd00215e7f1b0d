"""Admission: the window is never exceeded, nobody waits for a bigger batch, nothing is admitted twice."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from shared import control
from shared.db import transaction
from shared.tables import Run
from tests.integration.runner.bench import Bench, at_once
from workers.models.prompts import load_prompts
from workers.runner import dispatch
from workers.runner.advance import Publication
from workers.runner.dispatch import DISPATCH_LOCK

MakeBench = Callable[..., Bench]


def questions(count: int) -> list[str]:
    return [f"Question {number}?" for number in range(count)]


def end(bench: Bench, run_ids: list[int]) -> None:
    bench.execute("DELETE FROM claims WHERE run_id = ANY(:ids)", ids=run_ids)
    bench.execute(
        "UPDATE runs SET status = 'answered', answer = 'a', ended_at = now() WHERE id = ANY(:ids)",
        ids=run_ids,
    )


def running(bench: Bench) -> list[Any]:
    return bench.rows("SELECT id, batch_id FROM runs WHERE status = 'running' ORDER BY id")


def test_an_admitted_run_has_its_first_claim_and_one_publication(make_bench: MakeBench) -> None:
    bench = make_bench()
    batch = bench.submit(questions(2))
    first, second = bench.admit()
    assert first == Publication("crag", batch, first.run_id, 1, ["retrieve"])
    assert first.run_id < second.run_id, "in the order of the file"
    row = bench.run_row(first.run_id)
    assert (row.status, row.step) == ("running", 1) and row.admitted_at is not None
    (claim,) = bench.claims(first.run_id)
    assert (claim.node, claim.status, claim.attempt, claim.publishes) == ("retrieve", "ready", 0, 1)
    assert bench.admit() == []


def test_the_window_is_filled_and_not_exceeded(make_bench: MakeBench) -> None:
    bench = make_bench(window=5)
    bench.submit(questions(12))
    admitted = bench.admit()
    assert len(admitted) == 5 == len(running(bench))
    assert bench.admit() == []
    end(bench, [publication.run_id for publication in admitted[:2]])
    assert len(bench.admit()) == 2 and len(running(bench)) == 5
    first_rows = [row.first_row for row in bench.rows("SELECT first_row FROM runs WHERE status = 'pending'")]
    assert min(first_rows) == 8, "in the order of the file"


def test_a_smaller_window_than_what_runs_admits_nothing(make_bench: MakeBench) -> None:
    bench = make_bench(window=5)
    bench.submit(questions(8))
    bench.admit()
    assert make_bench(window=2).admit() == []


def test_ten_questions_behind_a_thousand_get_their_turn_in_the_first_admission(make_bench: MakeBench) -> None:
    bench = make_bench(window=32)
    big = bench.submit(questions(1000))
    small = bench.submit(questions(10))
    assert Counter(publication.batch_id for publication in bench.admit()) == {big: 22, small: 10}


def test_a_batch_that_comes_when_the_window_is_full_gets_the_next_free_places(make_bench: MakeBench) -> None:
    """One free place a tick is the usual case with slow models: it must not always be the oldest batch's."""
    bench = make_bench(window=4)
    big = bench.submit(questions(50))
    bench.admit()
    small = bench.submit(questions(3))
    later = bench.submit(questions(3))
    got: list[int] = []
    for _ in range(6):
        oldest = next(row.id for row in running(bench) if row.batch_id == big)
        end(bench, [oldest])
        got += [publication.batch_id for publication in bench.admit()]
    assert len(got) == 6
    assert small in got[:2] and later in got[:2], f"batches {small} and {later} wait for {big}: {got}"


def by_batch(bench: Bench) -> Counter[int]:
    return Counter(row.batch_id for row in running(bench))


def churn(bench: Bench, times: int) -> Counter[int]:
    """The oldest run ends and its place is given away, again and again: how many places each batch got."""
    got: Counter[int] = Counter()
    for _ in range(times):
        oldest = "SELECT id FROM runs WHERE status = 'running' ORDER BY admitted_at, id LIMIT 1"
        end(bench, [bench.one(oldest).id])
        got.update(publication.batch_id for publication in bench.admit())
    return got


def share(bench: Bench, batch: int, **values: Any) -> None:
    control.reprioritise(bench.engine, batch, control.Share(**values), actor="kim")


def test_weights_share_the_window_and_what_becomes_free(make_bench: MakeBench) -> None:
    bench = make_bench(window=24)
    light, usual, heavy = (bench.submit(questions(200)) for _ in range(3))
    share(bench, light, weight=0.5)
    share(bench, heavy, weight=2.5)
    bench.admit()
    assert by_batch(bench) == {light: 3, usual: 6, heavy: 15}
    churn(bench, 24)
    shares = by_batch(bench)
    assert abs(shares[light] - 3) <= 1 and abs(shares[usual] - 6) <= 1 and abs(shares[heavy] - 15) <= 1, (
        shares
    )


def test_a_changed_weight_moves_the_shares_as_places_become_free(make_bench: MakeBench) -> None:
    bench = make_bench(window=12)
    first, second = bench.submit(questions(200)), bench.submit(questions(200))
    bench.admit()
    assert by_batch(bench) == {first: 6, second: 6}
    share(bench, second, weight=3)
    assert by_batch(bench) == {first: 6, second: 6}, "nothing in flight is taken back"
    churn(bench, 12)
    assert by_batch(bench) == {first: 3, second: 9}


def test_a_higher_priority_goes_first_whatever_the_weights(make_bench: MakeBench) -> None:
    bench = make_bench(window=8)
    usual = bench.submit(questions(50))
    bench.admit()
    urgent = bench.submit(questions(3))
    share(bench, urgent, priority=1, weight=0.01)
    share(bench, usual, weight=100)
    assert churn(bench, 4) == {urgent: 3, usual: 1}, "and when it has nothing left, the others go on"


def test_a_cap_holds_at_every_admission_and_leaves_the_rest_to_others(make_bench: MakeBench) -> None:
    bench = make_bench(window=10)
    capped, other = bench.submit(questions(50)), bench.submit(questions(50))
    share(bench, capped, max_in_flight=2, priority=9)
    bench.admit()
    assert by_batch(bench) == {capped: 2, other: 8}
    churn(bench, 10)
    assert by_batch(bench)[capped] == 2
    share(bench, capped, max_in_flight=1)
    assert by_batch(bench)[capped] == 2, "nothing in flight is taken back"
    churn(bench, 10)
    assert by_batch(bench)[capped] == 1
    share(bench, capped, max_in_flight=0)
    churn(bench, 10)
    assert by_batch(bench)[capped] > 2


def test_a_capped_batch_alone_does_not_fill_the_window(make_bench: MakeBench) -> None:
    bench = make_bench(window=10)
    batch = bench.submit(questions(50))
    share(bench, batch, max_in_flight=4)
    bench.admit()
    assert by_batch(bench) == {batch: 4} and bench.admit() == []


def test_a_window_of_one_goes_round(make_bench: MakeBench) -> None:
    bench = make_bench(window=1)
    bench.submit(questions(100))
    small = bench.submit(questions(2))
    got = []
    for _ in range(40):
        (publication,) = bench.admit()
        got.append(publication.batch_id)
        end(bench, [publication.run_id])
    assert small in got, got


def test_a_run_that_somebody_else_holds_is_passed_over(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.submit(questions(3))
    with transaction(bench.engine) as session:
        held = session.scalars(select(Run.id).order_by(Run.id).limit(1).with_for_update()).one()
        admitted = [publication.run_id for publication in bench.admit()]
    assert len(admitted) == 2 and held not in admitted
    assert [publication.run_id for publication in bench.admit()] == [held]


def test_two_dispatchers_at_once_admit_each_run_once_and_within_the_window(make_bench: MakeBench) -> None:
    bench = make_bench(window=40)
    bench.submit(questions(100))
    results = at_once([bench.admit for _ in range(4)])
    admitted = [publication.run_id for found in results for publication in found]
    assert len(admitted) == len(set(admitted)) == 40 == len(running(bench))


def test_while_one_dispatcher_works_another_does_nothing(make_bench: MakeBench) -> None:
    """Both would count the window before either has filled it."""
    bench = make_bench(window=1)
    bench.submit(questions(2))
    with transaction(bench.engine) as session:
        session.execute(select(func.pg_advisory_xact_lock(DISPATCH_LOCK)))
        assert bench.admit() == []
    assert len(bench.admit()) == 1


def test_a_cancelled_batch_is_not_admitted(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.submit(questions(3))
    bench.execute("UPDATE batches SET status = 'cancelled', ended_at = now()")
    assert bench.admit() == []


def test_a_batch_whose_plan_cannot_be_read_is_paused_and_the_others_go_on(make_bench: MakeBench) -> None:
    bench = make_bench(window=3)
    odd = bench.submit(questions(10))
    bench.execute(
        """UPDATE batches SET plan = plan || '{"provider": "oracle", "reuse_days": "x"}' WHERE id = :b""",
        b=odd,
    )
    usual = bench.submit(questions(10))
    assert {publication.batch_id for publication in bench.admit()} == {usual}
    assert len(running(bench)) == 3, "its places went to the other"
    row = bench.one("SELECT status, pause_reason FROM batches WHERE id = :b", b=odd)
    assert row.status == "paused" and row.pause_reason.endswith(": provider, reuse_days")
    (event,) = bench.rows("SELECT action, actor FROM events WHERE batch_id = :b AND action = 'paused'", b=odd)
    assert event.actor == control.SYSTEM


def test_a_batch_ends_with_its_last_run_and_not_before(make_bench: MakeBench) -> None:
    bench = make_bench(window=1)
    batch = bench.submit(["a?", "b?"])
    other = bench.submit(["c?"])
    first = bench.admit()[0].run_id
    end(bench, [first])
    second = bench.admit()[0].run_id

    def status(of: int) -> Any:
        return bench.one("SELECT status, ended_at FROM batches WHERE id = :b", b=of)

    assert status(batch).status == "open"
    while status(batch).status == "open" and running(bench):
        end(bench, [row.id for row in running(bench)])
        bench.admit()
    last = bench.one("SELECT max(ended_at) AS at FROM runs WHERE batch_id = :b", b=batch).at
    assert status(batch).status == "ended" and status(batch).ended_at == last
    assert second is not None
    end(bench, [row.id for row in running(bench)])
    bench.admit()
    assert status(other).status == "ended"
    assert bench.rows("SELECT * FROM lost_runs") == []


def test_a_full_window_still_ends_batches(make_bench: MakeBench) -> None:
    bench = make_bench(window=1)
    done = bench.submit(["a?"])
    run = bench.admit()[0].run_id
    bench.submit(["b?"])
    bench.execute("UPDATE runs SET status = 'running', step = 1 WHERE status = 'pending'")
    end(bench, [run])
    assert bench.admit() == []
    assert bench.one("SELECT status FROM batches WHERE id = :b", b=done).status == "ended"


def test_the_prompts_are_frozen_at_the_first_admission_and_kept(make_bench: MakeBench) -> None:
    bench = make_bench(window=1)
    batch = bench.submit(["a?", "b?"])
    bench.admit()
    plan = bench.one("SELECT plan FROM batches WHERE id = :b", b=batch).plan
    stored, plan_roles = plan["prompts"], set(plan["models"])
    assert stored
    used = {name: prompt for name, prompt in load_prompts().items() if prompt.role in plan_roles}
    assert stored == {name: prompt.version for name, prompt in used.items()}
    texts = bench.rows("SELECT role, version, text FROM prompts")
    assert {(row.role, row.version): row.text for row in texts} == {
        (prompt.role, prompt.version): prompt.text for prompt in used.values()
    }
    # What is frozen stays, even when other prompts are shipped by the second admission.
    bench.execute("UPDATE batches SET plan = jsonb_set(plan, '{prompts,query_rewriter}', '\"old\"')")
    end(bench, [row.id for row in running(bench)])
    bench.admit()
    assert bench.one("SELECT plan FROM batches").plan["prompts"]["query_rewriter"] == "old"


@pytest.mark.parametrize("models", ["local"])
def test_local_models_have_no_prompts_to_freeze(make_bench: MakeBench, models: str) -> None:
    bench = make_bench(models=models)
    bench.submit(["a?"])
    bench.admit()
    assert bench.one("SELECT plan FROM batches").plan["prompts"] == {}
    assert bench.rows("SELECT * FROM prompts") == []


def test_a_tick_looks_at_what_is_open_and_not_at_every_run(bench: Bench) -> None:
    """At a million runs, a look at each of them would take a second, every second."""
    bench.submit(f"q{n}?" for n in range(3000))
    bench.execute("UPDATE runs SET status = 'failed', error = 'x', ended_at = now() WHERE first_row <= 1500")
    bench.execute("ANALYZE")
    values = {"room": 128, "window": 128, "pipelines": ["crag"]}
    for statement in (dispatch._IN_FLIGHT, dispatch._THROUGH, dispatch._NEXT):
        asked = {name: value for name, value in values.items() if f":{name}" in statement.text}
        plan = "\n".join(row[0] for row in bench.rows(f"EXPLAIN {statement.text}", **asked))
        assert "on runs" in plan and "Seq Scan on runs" not in plan, plan


def test_what_waits_for_a_provider_keeps_no_other_batch_waiting(make_bench: Callable[..., Bench]) -> None:
    """An outage, or a pause of an hour that the provider asked for, is its own batch's; and no more of it begins."""
    bench = make_bench(window=4)
    stuck = bench.submit(f"q{n}?" for n in range(9))
    assert len(bench.admit()) == 4
    bench.execute("UPDATE claims SET not_before = now() + interval '9 s'")
    other = bench.submit(f"ten {n}?" for n in range(9))
    assert bench.admit() == [], "they are back in a moment"
    bench.execute("UPDATE claims SET not_before = now() + interval '1 hour'")
    assert Counter(one.batch_id for one in bench.admit()) == {other: 4}
    assert bench.admit() == []
    bench.overdue()
    assert bench.admit() == []
    assert (
        bench.one("SELECT count(*) AS n FROM runs WHERE batch_id = :b AND status = 'running'", b=stuck).n == 4
    )
