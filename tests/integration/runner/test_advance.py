"""Joins: once, only when all is over, and by the rows in branch order, whoever comes when."""

from typing import Any

import pytest

from shared.db import transaction
from tests.integration.runner.bench import Bench, at_once, pipeline
from tests.integration.runner.graphs import circle, ends, fan_out, one, says
from workers.runner import advance, claims
from workers.runner.advance import Publication
from workers.runner.pipelines import adapters


def at_grading(bench: Bench, **sets: Any) -> int:
    """A run whose three documents are to be graded: step 2, branches 0 to 2."""
    run = bench.start(**sets)
    publication, over = bench.run(run, 1)
    assert over and publication is not None
    assert (publication.step, publication.nodes) == (2, ["grade_document"] * 3)
    return run


def test_a_join_waits_for_every_branch(bench: Bench) -> None:
    run = at_grading(bench)
    for branch in (2, 0):
        assert bench.run(run, 2, branch) == (None, True)
        assert bench.join(run, 2) is None
    assert bench.run_row(run).step == 2
    bench.run(run, 2, 1)
    joined = bench.join(run, 2)
    assert joined == Publication("crag", bench.run_row(run).batch_id, run, 3, ["decide"])
    assert [(claim.step, claim.node, claim.status) for claim in bench.claims(run)] == [(3, "decide", "ready")]
    assert bench.claims(run)[0].came_from == ["grade_document"]


def test_a_join_waits_for_a_branch_that_is_being_tried_again(bench: Bench) -> None:
    run = at_grading(bench)
    bench.run(run, 2, 0)
    bench.run(run, 2, 1)
    won = bench.must_win(run, 2, 2)
    assert bench.join(run, 2) is None
    with transaction(bench.engine) as session:
        claims.mark_for_retry(session, won, 60)
    assert bench.join(run, 2) is None


def test_of_many_joins_at_once_one_advances_the_run(bench: Bench) -> None:
    run = at_grading(bench)
    for branch in range(3):
        bench.run(run, 2, branch)
    results = at_once([lambda: bench.join(run, 2) for _ in range(6)])
    assert [found is not None for found in results].count(True) == 1
    assert all(found is None or isinstance(found, Publication) for found in results)
    assert len(bench.claims(run)) == 1
    assert bench.join(run, 2) is None and bench.join(run, 3) is None


def test_the_branches_of_a_chord_may_end_in_the_same_moment(bench: Bench) -> None:
    run = at_grading(bench)
    results = at_once([lambda b=b: bench.run(run, 2, b) for b in range(3)])
    assert results == [(None, True)] * 3
    assert bench.join(run, 2) is not None
    assert len(bench.rows("SELECT * FROM grades")) == 3


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_state_is_folded_in_branch_order_whatever_the_order_of_arrival(
    bench: Bench, order: tuple[int, ...]
) -> None:
    run = at_grading(bench)
    for branch in order:
        bench.run(run, 2, branch)
    bench.join(run, 2)
    won = bench.must_win(run, 3)
    with transaction(bench.engine) as session:
        state = advance.load_state(session, adapters()["crag"], won, before=3)
        earlier = advance.load_state(session, adapters()["crag"], won, before=2)
        first = advance.load_state(session, adapters()["crag"], won, before=1)
    assert [grade["document_id"] for grade in state["grades"]] == ["id-A", "id-B", "id-C"]
    assert earlier["grades"] == [] and len(earlier["documents"]) == 3
    assert first == {
        "question": "How old?",
        "params": won.plan.params,
        "notes": [],
        "grades": [],
        "strips": [],
    }
    ranks = bench.rows("SELECT branch, document_id FROM grades ORDER BY branch")
    assert [tuple(row) for row in ranks] == [(0, "id-A"), (1, "id-B"), (2, "id-C")]


def test_only_what_counted_is_folded(bench: Bench) -> None:
    """A lost and a retried attempt of the same branch have transitions too."""

    def item(task: Any, _resources: Any) -> dict[str, Any]:
        return {"log": [f"item {task['at']}"]}

    with pipeline("toy", fan_out(item, 2, lambda state, _r: ends(", ".join(state["log"])))):
        run = bench.start("toy")
        bench.run(run, 1)
        for status, attempt in (("lost", 7), ("retried", 8), ("failed", 9)):
            bench.execute(
                "INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, node, status, came_from,"
                " goes_to, state_update, started_at, ended_at, duration_ms) SELECT month, run_id, batch_id, 1, 5,"
                ' CAST(:attempt AS int), node, CAST(:status AS text), came_from, goes_to, \'{"log": ["ghost"]}\','
                " started_at, ended_at, 0 FROM transitions WHERE step = 1 AND status = 'succeeded'",
                attempt=attempt,
                status=status,
            )
        bench.heal()
        assert bench.run_row(run).answer == "spread, item 0, item 1"


def test_a_failed_branch_fails_the_run_with_a_failed_branchs_error(bench: Bench) -> None:
    def item(task: Any, _resources: Any) -> dict[str, Any]:
        if task["at"]:
            raise ValueError(f"branch {task['at']} is broken")
        return {"log": ["fine"]}

    with pipeline("toy", fan_out(item, 3, says(**ends()))):
        run = bench.start("toy")
        bench.run(run, 1)
        results = at_once([lambda b=b: bench.run(run, 2, b) for b in range(3)])
        assert not any(isinstance(found, Exception) for found in results)
        assert bench.join(run, 2) is None
        row = bench.run_row(run)
        assert row.status == "failed"
        assert row.error in (
            "item: ValueError: branch 1 is broken",
            "item: ValueError: branch 2 is broken",
        )
        assert bench.claims(run) == []
        assert bench.join(run, 2) is None


def test_too_many_steps_give_up_with_the_reason_and_keep_the_notes(bench: Bench) -> None:
    with pipeline("toy", circle()):
        run = bench.start("toy", max_steps=5)
        bench.heal()
        row = bench.run_row(run)
    assert (row.status, row.reason) == ("gave_up", "no answer within 5 steps")
    assert row.notes == ["round: one more"] * 5
    assert [transition.step for transition in bench.transitions(run)] == [1, 2, 3, 4, 5]
    assert bench.claims(run) == []


def test_as_many_steps_as_allowed_are_allowed(bench: Bench) -> None:
    run = bench.start("rag", max_steps=2)
    bench.heal()
    assert bench.run_row(run).status == "answered"
    run = bench.start("crag", max_steps=3)
    bench.heal()
    assert bench.run_row(run).reason == "no answer within 3 steps"


@pytest.mark.parametrize(
    ("update", "status", "text"),
    [
        (ends("so"), "answered", "so"),
        ({"disposition": "gave_up", "reason": "no idea"}, "gave_up", "no idea"),
        ({"disposition": "gave_up"}, "gave_up", "no reason was given"),
        ({}, "failed", "graph: no_disposition: the graph ended without saying how"),
        ({"disposition": "cancelled"}, "failed", "graph: no_disposition: the graph ended without saying how"),
        ({"answer": "so"}, "failed", "graph: no_disposition: the graph ended without saying how"),
    ],
)
def test_how_a_run_ends(bench: Bench, update: dict[str, Any], status: str, text: str) -> None:
    with pipeline("toy", one(says(**update))):
        run = bench.start("toy")
        assert bench.run(run, 1) == (None, True)
    row = bench.run_row(run)
    assert (row.status, row.answer or row.reason or row.error) == (status, text)
    assert row.ended_at is not None and bench.claims(run) == []
    assert bench.transitions(run)[-1].goes_to == ["__end__"]
    sources = bench.one("SELECT sources IS NULL AS yes FROM runs").yes
    assert sources == (status != "answered")


def test_a_step_is_entered_together_with_leaving_the_one_before(bench: Bench) -> None:
    """Were there a moment between the two, a crash in it would lose the run."""
    run = bench.start()
    bench.run(run, 1)
    assert bench.rows("SELECT * FROM lost_runs") == []
    row = bench.run_row(run)
    assert row.step == 2 and {claim.step for claim in bench.claims(run)} == {2}
    assert all(claim.publishes == 1 and claim.width == 3 for claim in bench.claims(run))
    early = bench.one("SELECT count(*) AS n FROM claims WHERE wake_at < now() + interval '25 s'").n
    assert early == 0, "published a moment ago, so nobody publishes it again yet"
