"""Retrying and forking: the history stays as it was, what has succeeded is not done again, and the state is right."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared import control, rework
from shared.control import Done
from shared.errors import Conflict, NotFound, PermanentError, TransientError, UsageError
from shared.rework import Chosen
from tests.integration.runner import graphs
from tests.integration.runner.bench import Bench, at_once, pipeline, sound
from tests.unit.workers.nodes.fakes import Script
from workers.runner import advance
from workers.runner.graph_adapter import GraphAdapter
from workers.runner.pipelines import adapters

FAILED = Chosen()
NOTHING_RELEVANT = dict.fromkeys("ABCW", ("not_relevant", 0.1))


class Fan:
    """spread => item x 3 -> last -> END, whose items fail as long as their number is in `broken`."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.broken: dict[int, Exception] = {}
        self.begun: list[int] = []
        self.builder = graphs.fan_out(self.item, 3, self.last)

    def item(self, state: Any, _resources: Any) -> dict[str, Any]:
        self.begun.append(state["at"])
        if state["at"] in self.broken:
            raise self.broken[state["at"]]
        return {"log": [f"item {state['at']}"]}

    @staticmethod
    def last(state: Any, _resources: Any) -> dict[str, Any]:
        return {**graphs.ends(" ".join(state["log"])), "log": ["last"]}


@pytest.fixture
def fan(bench: Bench) -> Iterator[Fan]:
    made = Fan(bench)
    with pipeline("fan", made.builder):
        yield made


def broken(code: str = "bad") -> PermanentError:
    return PermanentError("no", code=code, where="here")


def batch_of(bench: Bench, run: int) -> int:
    return int(bench.run_row(run).batch_id)


def failed_fan(bench: Bench, fan: Fan, error: Exception | None = None) -> int:
    """A run whose branch 1 failed and whose branch 0 succeeded; branch 2 was not begun."""
    fan.broken = {1: error or broken()}
    run = bench.start("fan")
    bench.run(run, 1)
    for branch in range(3):
        bench.run(run, 2, branch)
    bench.join(run, 2)
    assert bench.run_row(run).status == "failed"
    fan.begun.clear()
    return run


def retry(bench: Bench, run: int, chosen: Chosen = FAILED, **values: Any) -> Done:
    return rework.retry(bench.engine, batch_of(bench, run), chosen, actor="kim", **values)


# -- retry: what happens to the run ----------------------------------------------------------------------


def test_a_failed_fan_out_is_retried_at_its_failed_branches_only(bench: Bench, fan: Fan) -> None:
    run = failed_fan(bench, fan)
    bench.admit()
    before = bench.transitions(run)
    fan.broken.clear()
    assert retry(bench, run).runs == 1
    row = bench.run_row(run)
    assert (row.status, row.step, row.round, row.error, row.ended_at) == ("pending", 2, 2, None, None)
    sound(bench)
    bench.heal()
    row = bench.run_row(run)
    assert (row.status, row.answer, row.step) == ("answered", "spread item 0 item 1 item 2", 3)
    assert sorted(fan.begun) == [1, 2], "branch 0 had succeeded"
    after = bench.transitions(run)
    assert [one for one in after if one in before] == before, "what was recorded stays"
    kept = [(one.branch, one.attempt, one.round, one.status) for one in after if one.step == 2]
    assert kept == [
        (0, 1, 1, "succeeded"), (1, 1, 1, "failed"), (1, 2, 2, "succeeded"),
        (2, 1, 1, "skipped"), (2, 2, 2, "succeeded"),
    ]  # fmt: skip
    sound(bench)


def test_a_retry_from_the_start_goes_on_counting_steps_with_a_fresh_state(bench: Bench, fan: Fan) -> None:
    run = failed_fan(bench, fan)
    fan.broken.clear()
    retry(bench, run, from_failed_node=False)
    bench.heal()
    row = bench.run_row(run)
    assert (row.status, row.answer) == ("answered", "spread item 0 item 1 item 2"), "not twice"
    assert (row.first_step, row.step, row.round) == (3, 5, 2)
    assert sorted(fan.begun) == [0, 1, 2]
    sound(bench)


def test_a_retry_has_all_its_tries_again_and_fails_with_its_own_error(bench: Bench, fan: Fan) -> None:
    run = failed_fan(bench, fan)
    fan.broken = {1: TransientError("busy", code="busy", where="here")}
    retry(bench, run)
    bench.heal()
    row = bench.run_row(run)
    assert row.status == "failed" and row.error == "item: busy: busy (after 4 attempts)"
    attempts = [(one.attempt, one.round, one.status) for one in bench.transitions(run) if one.branch == 1]
    retried = [(attempt, 2, "retried") for attempt in (2, 3, 4)]
    assert attempts == [(1, 1, "failed"), *retried, (5, 2, "failed")]
    fan.broken.clear()
    retry(bench, run)
    bench.heal()
    assert bench.run_row(run).answer == "spread item 0 item 1 item 2"
    sound(bench)


def test_a_single_node_is_retried_where_it_failed(bench: Bench) -> None:
    bench.script.answer = broken()
    run = bench.start()
    bench.heal()
    step = bench.run_row(run).step
    asked = len(bench.script.seen)
    bench.script.answer = None
    retry(bench, run)
    bench.heal()
    row = bench.run_row(run)
    assert (row.status, row.step) == ("answered", step)
    assert [role for role, _ in bench.script.seen[asked:]] == ["generator"]
    sound(bench)


def test_the_state_of_a_retried_run_is_that_of_one_that_never_failed(bench: Bench) -> None:
    def state(run: int) -> dict[str, Any]:
        step = bench.run_row(run).step
        with bench.engine.connect() as connection:
            course = advance.Course.of(bench.run_row(run))
            month = bench.one("SELECT month FROM batches LIMIT 1").month
            locked = advance.LockedRun(run, 0, month, bench.run_row(run).question, bench.plan(), course)
            return advance.load_state(connection, adapters()["crag"], locked, before=step + 1)  # type: ignore[arg-type]

    calm = bench.start()
    bench.heal()
    bench.script.answer = broken()
    failed = bench.start()
    bench.heal()
    bench.script.answer = None
    retry(bench, failed)
    bench.heal()
    anew = bench.start()
    bench.heal()
    retry(bench, anew, Chosen(("answered",)))
    bench.heal()
    assert state(calm) == state(failed) == state(anew)
    sound(bench)


def test_an_ended_batch_is_open_again_until_its_retried_runs_have_ended(bench: Bench, fan: Fan) -> None:
    run = failed_fan(bench, fan)
    bench.admit()
    batch = batch_of(bench, run)
    assert bench.one("SELECT status FROM batches").status == "ended"
    assert retry(bench, run, reason="key mended") == Done(batch, "retried", "open", True, runs=1)
    assert bench.one("SELECT ended_at FROM batches").ended_at is None
    fan.broken.clear()
    bench.heal()
    assert bench.one("SELECT status FROM batches").status == "ended"
    events = bench.rows("SELECT * FROM events WHERE action = 'retried' ORDER BY run_id NULLS LAST")
    assert [(one.actor, one.run_id, one.reason) for one in events] == [
        ("kim", run, "key mended"), ("kim", None, "key mended"),
    ]  # fmt: skip
    assert events[0].detail == {"round": 2, "from_step": 2, "was": "failed", "error": "item: bad: no"}
    ended = bench.rows("SELECT id FROM events WHERE action = 'ended'")
    assert len(ended) == 2, "once a round"


def test_a_cancelled_run_goes_on_where_it_was_stopped(bench: Bench, fan: Fan) -> None:
    run = bench.start("fan")
    bench.run(run, 1)
    bench.run(run, 2, 0)
    bench.must_win(run, 2, 1)
    batch = batch_of(bench, run)
    control.cancel(bench.engine, batch, actor="kim")
    fan.begun.clear()
    with pytest.raises(Conflict, match="was cancelled"):
        retry(bench, run)
    retry(bench, run, Chosen(("cancelled",)))
    bench.heal()
    assert bench.run_row(run).answer == "spread item 0 item 1 item 2"
    assert sorted(fan.begun) == [1, 2]
    sound(bench)


@pytest.mark.parametrize("from_failed_node", [True, False])
def test_a_run_that_is_cancelled_again_before_its_retry_began_can_be_retried(
    bench: Bench, fan: Fan, from_failed_node: bool
) -> None:
    run = failed_fan(bench, fan)
    fan.broken.clear()
    batch = batch_of(bench, run)
    for _ in range(2):
        chosen = Chosen(("failed", "cancelled"))
        rework.retry(bench.engine, batch, chosen, actor="kim", from_failed_node=from_failed_node)
        control.cancel(bench.engine, batch, actor="kim")
        sound(bench)
    rework.retry(bench.engine, batch, Chosen(("cancelled",)), actor="kim", from_failed_node=from_failed_node)
    bench.heal()
    assert bench.run_row(run).answer == "spread item 0 item 1 item 2"
    assert bench.run_row(run).round == 4
    sound(bench)


def test_a_run_cancelled_before_its_admission_is_retried_from_step_one(bench: Bench) -> None:
    batch = bench.submit(["a?"])
    control.cancel(bench.engine, batch, actor="kim")
    rework.retry(bench.engine, batch, Chosen(("cancelled",)), actor="kim")
    bench.heal()
    run = bench.one("SELECT id, status, first_step FROM runs")
    assert (run.status, run.first_step) == ("answered", 1)
    sound(bench)


def test_what_a_stale_worker_brings_after_a_retry_is_dropped(bench: Bench, fan: Fan) -> None:
    """Its claim ran out, the run failed and was retried: the attempt number is another one."""
    run = bench.start("fan", max_attempts=1)
    bench.run(run, 1)
    stale = bench.must_win(run, 2, 1)
    control.cancel(bench.engine, batch_of(bench, run), actor="kim")
    retry(bench, run, Chosen(("cancelled",)))
    bench.admit()
    fresh = bench.must_win(run, 2, 1)
    assert (stale.attempt, fresh.attempt, fresh.tries) == (1, 2, 1)
    outcome = bench.executor._run_node(stale, adapters()["fan"])
    assert bench.executor._settle(stale, outcome) is None
    assert [one.status for one in bench.transitions(run) if one.branch == 1] == ["cancelled"]


def test_a_graph_that_has_changed_since_is_not_retried_in_its_middle(
    bench: Bench, fan: Fan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = failed_fan(bench, fan)
    retry(bench, run)
    monkeypatch.setitem(adapters(), "fan", GraphAdapter("fan", graphs.fan_out(graphs.says(log=["x"]), 1)))
    bench.admit()
    row = bench.run_row(run)
    assert row.status == "failed" and row.error.startswith(
        "admission: step 2 branch 1 was item, but the graph"
    )
    sound(bench)


# -- retry: which runs -----------------------------------------------------------------------------------


def test_which_runs_are_retried(bench: Bench, fan: Fan) -> None:
    first = failed_fan(bench, fan, broken("quota"))
    batch = batch_of(bench, first)
    bench.execute("UPDATE runs SET ended_at = now() - interval '2 days'")

    def count(**values: Any) -> int:
        try:
            return rework.retry(bench.engine, batch, Chosen(**values), actor="kim", dry_run=True).runs
        except Conflict:
            return 0

    now = datetime.now(UTC)
    assert count() == count(dispositions=("failed", "gave_up")) == 1
    assert count(dispositions=("answered",)) == 0
    assert count(error_class="quota") == count(error_class="PermanentError") == 1
    assert count(error_class="rate_limit") == count(error_class="TransientError") == 0
    assert count(node="item") == 1 and count(node="spread") == 0
    assert count(since=now - timedelta(days=3)) == 1 and count(since=now - timedelta(days=1)) == 0
    with pytest.raises(Conflict, match=f"nothing to retry: no run of batch {batch} is gave up, at node item"):
        retry(bench, first, Chosen(("gave_up",), node="item"))
    with pytest.raises(Conflict, match=r"with error rate_limit\. Those that failed: quota at item \(1\)\."):
        rework.retry(bench.engine, batch, Chosen(error_class="rate_limit"), actor="kim")
    assert bench.run_row(first).status == "failed", "only counted"
    assert bench.rows("SELECT * FROM events WHERE action = 'retried'") == []


def test_a_run_that_gave_up_is_chosen_by_its_last_node_and_begun_anew(bench: Bench) -> None:
    bench.script.documents = []
    bench.script.web = []
    run = bench.start()
    bench.heal()
    assert bench.run_row(run).status == "gave_up"
    last = bench.transitions(run)[-1]
    assert retry(bench, run, Chosen(("gave_up",), node=last.node)).runs == 1
    assert bench.run_row(run).first_step == last.step + 1
    bench.heal()
    sound(bench)


def test_wrong_words_and_missing_batches_are_said_so(bench: Bench) -> None:
    with pytest.raises(UsageError, match="no disposition lost"):
        Chosen(("lost",))
    with pytest.raises(UsageError, match="time zone"):
        Chosen(since=datetime(2026, 1, 1))
    with pytest.raises(NotFound):
        rework.retry(bench.engine, 999, FAILED, actor="kim")


# -- races -----------------------------------------------------------------------------------------------


def test_two_retries_at_once_make_one_round(bench: Bench, fan: Fan) -> None:
    run = failed_fan(bench, fan)
    results = at_once([lambda: retry(bench, run) for _ in range(4)])
    assert sum(isinstance(result, Done) for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 3
    assert bench.run_row(run).round == 2
    sound(bench)


def test_a_batch_that_is_being_ended_while_its_runs_are_retried_is_not_over(bench: Bench, fan: Fan) -> None:
    for _ in range(10):
        run = failed_fan(bench, fan)
        results = at_once([lambda r=run: retry(bench, r), bench.admit, bench.admit])
        assert not [result for result in results if isinstance(result, Exception)], results
        sound(bench)
    fan.broken.clear()
    bench.heal()
    assert {row.status for row in bench.rows("SELECT status FROM batches")} == {"ended"}


def test_a_retry_and_a_cancel_at_once_leave_nothing_open_in_a_batch_that_is_over(
    bench: Bench, fan: Fan
) -> None:
    for _ in range(5):
        run = failed_fan(bench, fan)
        batch = batch_of(bench, run)
        cancel = lambda b=batch: control.cancel(bench.engine, b, actor="lee")  # noqa: E731
        at_once([lambda r=run: retry(bench, r), cancel, bench.admit])
        assert bench.run_row(run).status in ("cancelled", "failed", "pending", "running")
        assert bench.one("SELECT status FROM batches WHERE id = :b", b=batch).status != "paused"
        sound(bench)


# -- fork ------------------------------------------------------------------------------------------------


def fork(bench: Bench, run: int, step: int, **sets: Any) -> rework.Forked:
    return rework.fork(bench.engine, run, step, bench.settings, sets, actor="kim", reason="what if")


def test_a_fork_goes_on_from_the_middle_with_other_numbers_and_leaves_its_origin_alone(bench: Bench) -> None:
    run = bench.start()
    bench.heal()
    before, origin = bench.transitions(run), bench.run_row(run)
    seen = len(bench.script.seen)
    made = fork(bench, run, 3, ratio="1")
    assert made.params == {"ratio": 1.0} and made.batch_id != origin.batch_id
    sound(bench)
    bench.heal()
    assert (bench.transitions(run), bench.run_row(run)) == (before, origin)
    row = bench.run_row(made.run_id)
    assert (row.status, row.forked_from, row.web_used) == ("answered", run, True), "3 of 3 is not above 1"
    assert next(one.node for one in bench.transitions(made.run_id)) == "decide"
    assert "retriever" not in [role for role, _ in bench.script.seen[seen:]]
    event = bench.one("SELECT * FROM events WHERE action = 'forked'")
    assert (event.run_id, event.batch_id, event.actor, event.reason) == (
        run,
        origin.batch_id,
        "kim",
        "what if",
    )
    assert event.detail == {
        "step": 3,
        "params": {"ratio": 1.0},
        "new_batch": made.batch_id,
        "new_run": made.run_id,
    }
    sound(bench)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_fork_before_at_and_after_a_fan_out_comes_to_the_same(bench: Bench, fan: Fan, step: int) -> None:
    run = bench.start("fan")
    bench.heal()
    fan.begun.clear()
    made = fork(bench, run, step)
    bench.heal()
    assert bench.run_row(made.run_id).answer == bench.run_row(run).answer == "spread item 0 item 1 item 2"
    assert sorted(fan.begun) == ([] if step == 3 else [0, 1, 2])
    assert {one.step for one in bench.transitions(made.run_id)} == set(range(step, 4))
    sound(bench)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("crag", {"verdicts": NOTHING_RELEVANT}),
        ("self_rag", {"grounded": (False,)}),
        ("adaptive", {"useful": (False,), "verdicts": dict.fromkeys("ABCW", ("relevant", 0.9))}),
    ],
    ids=["crag without relevant documents", "self_rag ungrounded", "adaptive useless"],
)
def test_a_fork_from_any_step_of_a_run_that_was_reworked_comes_to_the_same(
    bench: Bench, three: Script, name: str, says: dict[str, Any]
) -> None:
    bench.script = replace(three, **says)
    run = bench.start(name)
    bench.heal()
    origin = bench.run_row(run)
    nodes = [row.node for row in bench.transitions(run)]
    assert len(nodes) > len(set(nodes)) and origin.status in ("answered", "gave_up")
    forks = [
        rework.fork(bench.engine, run, step, bench.settings, actor="kim").run_id
        for step in range(1, origin.step + 1)
    ]
    bench.heal(300)
    for fork in forks:
        row = bench.run_row(fork)
        assert (row.status, row.answer, row.reason, row.step, row.notes) == (
            origin.status, origin.answer, origin.reason, origin.step, origin.notes,
        )  # fmt: skip
    sound(bench)


def test_a_fork_of_a_fork_and_a_retry_of_a_fork_build_on_the_whole_course(bench: Bench, fan: Fan) -> None:
    run = bench.start("fan")
    bench.heal()
    first = fork(bench, run, 2)
    bench.heal()
    second = fork(bench, first.run_id, 3)
    bench.heal()
    assert bench.run_row(second.run_id).answer == "spread item 0 item 1 item 2"
    row = bench.run_row(second.run_id)
    assert [(part["run_id"], part["first"], part["before"]) for part in row.inherited] == [
        (run, 1, 2), (first.run_id, 2, 3),
    ]  # fmt: skip
    retry(bench, second.run_id, Chosen(("answered",)))
    bench.heal()
    row = bench.run_row(second.run_id)
    assert (row.answer, row.first_step) == ("spread item 0 item 1 item 2", 4)
    sound(bench)


def test_a_run_that_is_still_under_way_or_has_failed_can_be_forked(bench: Bench, fan: Fan) -> None:
    run = failed_fan(bench, fan)
    fan.broken.clear()
    made = fork(bench, run, 2)
    bench.heal()
    assert bench.run_row(made.run_id).answer == "spread item 0 item 1 item 2"
    assert bench.run_row(run).status == "failed"
    under_way = bench.start("fan")
    bench.run(under_way, 1)
    fork(bench, under_way, 2)
    bench.heal()
    sound(bench)


def test_a_fork_with_numbers_that_lead_straight_to_the_end_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leads(state: Any) -> str:
        return "more" if state["params"]["k"] > 4 else "__end__"

    builder = graphs.one(graphs.says(**graphs.ends()))
    builder.edges.discard(("work", "__end__"))
    graphs.add_node(builder, "more", graphs.says(log=["more"]), queue="control")
    builder.add_conditional_edges("work", leads, ["more", "__end__"])
    monkeypatch.setitem(adapters(), "rag", GraphAdapter("rag", builder))
    run = bench.start("rag", k="5")
    bench.heal()
    made = fork(bench, run, 2, k="4")
    bench.heal()
    assert bench.run_row(made.run_id).status == "answered"
    assert bench.transitions(made.run_id) == []


def test_what_cannot_be_forked_is_said_so(bench: Bench) -> None:
    run = bench.start()
    bench.heal()
    last = bench.run_row(run).step
    for step in (0, last + 1):
        with pytest.raises(Conflict, match=f"can be forked from its steps 1 to {last}, not {step}"):
            fork(bench, run, step)
    with pytest.raises(UsageError, match="crag has no setting 'kk'"):
        fork(bench, run, 2, kk="1")
    with pytest.raises(UsageError, match="collection stays"):
        fork(bench, run, 2, collection="other")
    with pytest.raises(NotFound, match="no run 999"):
        fork(bench, 999, 1)
    bench.submit(["new?"])
    new = bench.one("SELECT id FROM runs WHERE status = 'pending'").id
    with pytest.raises(Conflict, match="has not begun"):
        fork(bench, new, 1)


def test_a_fork_whose_origin_was_dropped_fails_in_words(bench: Bench, fan: Fan) -> None:
    run = bench.start("fan")
    bench.heal()
    made = fork(bench, run, 3)
    bench.execute(
        "UPDATE runs SET inherited = jsonb_set(inherited, '{0,run_id}', '999') WHERE id = :r", r=made.run_id
    )
    bench.admit()
    row = bench.run_row(made.run_id)
    assert row.status == "failed"
    assert row.error == "admission: step 2 of run 999, on which this builds, is not in the history"
