"""One claimed node after another, on handwritten resources: what ends as which row."""

import threading
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from shared.errors import PermanentError, Postponed, TransientError
from tests.integration.runner.bench import Bench, Cut, at_once, pipeline
from tests.integration.runner.graphs import Node, ends, fan_out, one, says
from workers.models.roles import CallResult, CallSpec, GeneratedAnswer
from workers.runner import claims, reconcile
from workers.runner.execute import pause_after

BUSY = TransientError("too many requests", code="rate_limit", where="openai")


def statuses(bench: Bench, run: int) -> list[tuple[str, int, str]]:
    return [(row.node, row.attempt, row.status) for row in bench.transitions(run)]


def raises(*errors: Exception | None) -> Node:
    """A node that raises these one after another, then ends well."""
    left = list(errors)

    def node(_state: Any, _resources: Any) -> dict[str, Any]:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return ends("at last")

    return node


# -- the usual case ---------------------------------------------------------------------------------------


def test_a_crag_run_node_by_node(bench: Bench) -> None:
    run = bench.start(k=3)
    bench.heal()
    row = bench.run_row(run)
    assert (row.status, row.answer) == ("answered", "From Doc A, Doc B, Doc C.")
    assert [source["title"] for source in row.sources] == ["Doc A", "Doc B", "Doc C"]
    assert row.web_used is False and row.notes == []
    found = [(t.step, t.branch, t.node, t.came_from, t.goes_to) for t in bench.transitions(run)]
    assert found == [
        (1, 0, "retrieve", ["__start__"], ["grade_document"] * 3),
        *[(2, branch, "grade_document", ["retrieve"], ["decide"]) for branch in range(3)],
        (3, 0, "decide", ["grade_document"], ["generate"]),
        (4, 0, "generate", ["decide"], ["__end__"]),
    ]
    assert {t.worker for t in bench.transitions(run)} == {"bench@test"}
    assert bench.transitions(run)[0].task_id == f"task-{run}.1.0"


def test_the_web_is_said_to_be_used_only_when_it_gave_something(bench: Bench) -> None:
    bench.script.verdicts = dict.fromkeys("ABC", ("not_relevant", 0.1))
    run = bench.start()
    bench.heal()
    assert bench.run_row(run).web_used is True
    bench.script.web = []
    run = bench.start()
    bench.heal()
    row = bench.run_row(run)
    assert (row.status, row.web_used) == ("gave_up", False)
    assert row.notes == ["web_search_empty: the web search found nothing"]


def test_transition_claim_and_run_change_together_or_not_at_all(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last statement of a step fails: nothing of it may be left."""
    from workers.runner import advance

    run = bench.start()
    real = advance.enter

    def breaks(*arguments: Any) -> Any:
        real(*arguments)
        raise OperationalError("COMMIT", {}, Exception("connection lost"))

    monkeypatch.setattr(advance, "enter", breaks)
    monkeypatch.setattr("shared.db.PATIENCE", 0)
    with pytest.raises(OperationalError):
        bench.run(run, 1)
    assert bench.transitions(run) == [] and bench.run_row(run).step == 1
    (claim,) = bench.claims(run)
    assert (claim.status, claim.attempt) == ("running", 1)
    monkeypatch.undo()
    bench.lose(run)
    bench.heal()
    assert bench.run_row(run).status == "answered"
    assert statuses(bench, run)[:2] == [("retrieve", 1, "lost"), ("retrieve", 2, "succeeded")]


def test_no_transaction_is_open_while_a_node_runs(bench: Bench) -> None:
    open_ones: list[Any] = []

    def node(_state: Any, _resources: Any) -> dict[str, Any]:
        open_ones.extend(
            bench.rows(
                "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'"
            )
        )
        return ends()

    with pipeline("toy", one(node)):
        run = bench.start("toy")
        bench.run(run, 1)
        assert bench.run_row(run).status == "answered"
    assert open_ones == []


def test_text_that_postgres_refuses_is_cleaned_on_its_way_into_every_row(bench: Bench) -> None:
    dirty = "a\x00b\ud800"
    with pipeline(
        "toy", fan_out(lambda task, _r: {"notes": [dirty], "log": [dirty]}, 2, says(**ends(dirty)))
    ):
        run = bench.start("toy")
        bench.heal()
        row = bench.run_row(run)
    assert (row.status, row.answer) == ("answered", "a\ufffdb\ufffd")
    assert row.notes == ["a\ufffdb\ufffd"] * 2


# -- errors -----------------------------------------------------------------------------------------------


def test_a_transient_error_is_tried_again_after_a_pause(make_bench: Any) -> None:
    bench = make_bench(retry_base=40, retry_cap=60)
    with pipeline("toy", one(raises(BUSY))):
        run = bench.start("toy")
        assert bench.run(run, 1) == (None, True)
        (claim,) = bench.claims(run)
        assert (claim.status, claim.attempt, claim.lease_until) == ("ready", 1, None)
        pause = bench.one("SELECT extract(epoch FROM not_before - now()) AS s FROM claims").s
        assert 15 < pause <= 40 and claim.wake_at == claim.not_before
        assert bench.run(run, 1) == (None, False), "not before its time"
        (row,) = bench.transitions(run)
        assert (row.status, row.error_class, row.error) == (
            "retried",
            "TransientError",
            "rate_limit: too many requests",
        )
        assert row.goes_to == [] and row.state_update is None
        bench.overdue()
        bench.run(run, 1)
        assert bench.run_row(run).status == "answered"
        assert statuses(bench, run) == [("work", 1, "retried"), ("work", 2, "succeeded")]


def test_retry_after_is_waited_for(bench: Bench) -> None:
    slow_down = TransientError("slow down", code="rate_limit", where="openai", retry_after=70)
    with pipeline("toy", one(raises(slow_down))):
        run = bench.start("toy")
        bench.run(run, 1)
    pause = bench.one("SELECT extract(epoch FROM not_before - now()) AS s FROM claims").s
    assert 60 < pause < 71


def test_the_last_attempt_fails_the_run_and_says_how_many_there_were(make_bench: Any) -> None:
    bench = make_bench(max_attempts=3)
    with pipeline("toy", one(raises(*[BUSY] * 9))):
        run = bench.start("toy")
        bench.heal()
        row = bench.run_row(run)
    assert row.status == "failed"
    assert row.error == "work: rate_limit: too many requests (after 3 attempts)"
    assert [status for _, _, status in statuses(bench, run)] == ["retried", "retried", "failed"]
    assert bench.claims(run) == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermanentError("the key is refused", code="auth", where="openai"), "auth: the key is refused"),
        (
            ValueError("sk-hunter2-0123456789 at postgresql://u:hunter2@h/d"),
            "ValueError: [key] at postgresql://u:***@h/d",
        ),
        (KeyError("word\x00"), "KeyError: 'word\\x00'"),
        (RecursionError("too deep"), "RecursionError: too deep"),
    ],
)
def test_other_errors_fail_the_run_at_once_with_their_class_and_no_secret(
    bench: Bench, error: Exception, text: str
) -> None:
    with pipeline("toy", one(raises(error))):
        run = bench.start("toy")
        assert bench.run(run, 1) == (None, True)
    row = bench.run_row(run)
    assert (row.status, row.error) == ("failed", f"work: {text}")
    (transition,) = bench.transitions(run)
    assert (transition.status, transition.error_class, transition.error) == (
        "failed",
        type(error).__name__,
        text,
    )
    assert "hunter2" not in str(bench.rows("SELECT * FROM transitions")) + str(row)
    assert bench.claims(run) == [] and bench.rows("SELECT * FROM lost_runs") == []


@pytest.mark.parametrize(
    "update",
    [
        None,
        [1],
        {"wrong": 1},
        {"last": {1, 2}},
        {"last": float("nan")},
        {"last": b"bytes"},
        {"answer": object(), "disposition": "answered"},
    ],
)
def test_a_node_that_returns_no_update_fails_its_run_at_once(bench: Bench, update: Any) -> None:
    """Were it found out at the commit, the run would wait for its lease again and again."""
    with pipeline("toy", one(lambda _s, _r: update)):
        run = bench.start("toy")
        assert bench.run(run, 1) == (None, True)
    row = bench.run_row(run)
    assert row.status == "failed" and row.error.startswith("work: NodeBroke: toy.work returned")


def test_resources_that_cannot_be_made_fail_the_run(bench: Bench) -> None:
    def cannot(_plan: Any, _recorder: Any) -> Any:
        raise PermanentError("no key in this worker", code="no_key", where="openai")

    bench.make_resources = cannot
    run = bench.start()
    bench.run(run, 1)
    assert bench.run_row(run).error == "retrieve: no_key: no key in this worker"


@pytest.mark.parametrize(
    "update",
    [{"disposition": "answered"}, {"disposition": "answered", "answer": None}],
)
def test_an_end_without_its_answer_is_a_failure_not_a_run_without_end(bench: Bench, update: Any) -> None:
    with pipeline("toy", one(says(**update))):
        run = bench.start("toy")
        bench.run(run, 1)
    assert bench.run_row(run).status == "failed"


def test_a_grade_that_the_table_refuses_fails_the_run_at_once(bench: Bench) -> None:
    bench.script.verdicts = {**dict.fromkeys("BC", ("relevant", 0.9)), "A": ("relevant", 1.5)}
    run = bench.start()
    bench.run(run, 1)
    bench.run(run, 2, 0)
    assert [status for node, _, status in statuses(bench, run) if node == "grade_document"][:1] == ["failed"]


def test_a_database_that_was_away_for_a_moment_does_not_fail_the_run(bench: Bench) -> None:
    """The call cannot be stored because the connection broke; Postgres is back when the node has ended."""
    away = OperationalError("INSERT", {"question": "private"}, Exception("server closed the connection"))
    with pipeline("toy", one(raises(away))):
        run = bench.start("toy")
        try:
            bench.run(run, 1)
        except OperationalError:
            bench.lose(run)
        assert bench.run_row(run).status == "running"
        bench.heal()
        assert bench.run_row(run).status == "answered"
    assert "private" not in str(bench.transitions(run))


@pytest.mark.parametrize("seen", [False, True])
def test_what_is_done_when_the_database_goes_away_waits_for_it(bench: Bench, seen: bool) -> None:
    cut = Cut(bench.engine, seen=seen)
    calls = []

    def node(_state: Any, _resources: Any) -> dict[str, Any]:
        calls.append(1)
        cut.left = 1
        return ends()

    try:
        with pipeline("toy", one(node)):
            run = bench.start("toy")
            bench.run(run, 1)
        assert (len(calls), cut.left) == (1, 0)
        assert statuses(bench, run) == [("work", 1, "succeeded")]
        assert bench.run_row(run).status == "answered"
    finally:
        cut.stop()


# -- postponed ---------------------------------------------------------------------------------------------


def test_a_postponed_claim_counts_no_attempt_and_is_woken_when_it_is_due(bench: Bench) -> None:
    with pipeline("toy", one(raises(*[Postponed(40, "rate limit")] * 3))):
        run = bench.start("toy")
        for _ in range(3):
            assert bench.run(run, 1) == (None, False)
            (claim,) = bench.claims(run)
            assert (claim.status, claim.attempt, claim.lease_until) == ("ready", 0, None)
            assert claim.publishes == 0, "its next publications must not be paused for longer and longer"
            pause = bench.one("SELECT extract(epoch FROM not_before - now()) AS s FROM claims").s
            assert 35 < pause <= 40 and claim.wake_at == claim.not_before
            assert bench.run(run, 1) == (None, False), "not before its time"
            assert reconcile.due(bench.engine, bench.settings) == []
            bench.execute("UPDATE claims SET wake_at = now(), not_before = now()")
            assert len(reconcile.due(bench.engine, bench.settings)) == 1
        assert bench.run(run, 1)[1]
        assert statuses(bench, run) == [("work", 1, "succeeded")]
    assert bench.run_row(run).status == "answered"


def test_a_postponed_branch_leaves_its_chord_and_joins_alone(bench: Bench) -> None:
    left = [Postponed(0.0, "rate limit")]

    def item(_task: Any, _resources: Any) -> dict[str, Any]:
        if left:
            raise left.pop()
        return {}

    with pipeline("toy", fan_out(item, 2, says(**ends()))):
        run = bench.start("toy")
        bench.run(run, 1)
        assert [bench.run(run, 2, branch)[1] for branch in (0, 1)] == [False, True]
        assert bench.join(run, 2) is None, "the chord's body comes too early"
        ((publication, branch),) = reconcile.due(bench.engine, bench.settings)
        assert (publication.step, branch) == (2, 0)
        assert bench.run(run, 2, 0)[1]
        assert bench.join(run, 2) is not None
        bench.heal()
    assert bench.run_row(run).status == "answered"


# -- fan-outs ---------------------------------------------------------------------------------------------


def test_a_failed_branch_spares_those_that_nobody_began_and_hangs_nothing(bench: Bench) -> None:
    began: list[int] = []

    def item(task: Any, _resources: Any) -> dict[str, Any]:
        began.append(task["at"])
        raise ValueError("broken")

    with pipeline("toy", fan_out(item, 4, says(**ends()))):
        run = bench.start("toy")
        bench.run(run, 1)
        assert bench.run(run, 2, 2) == (None, True)
        assert [bench.run(run, 2, branch) for branch in (0, 1, 3)] == [(None, False)] * 3
        assert bench.join(run, 2) is None
    assert began == [2]
    assert bench.run_row(run).error == "item: ValueError: broken"
    assert [(t.branch, t.status) for t in bench.transitions(run) if t.step == 2] == [
        (0, "skipped"),
        (1, "skipped"),
        (2, "failed"),
        (3, "skipped"),
    ]


def test_branches_that_fail_at_once_all_end(bench: Bench) -> None:
    gate = threading.Barrier(4)

    def item(_task: Any, _resources: Any) -> dict[str, Any]:
        gate.wait(10)
        raise ValueError("broken")

    with pipeline("toy", fan_out(item, 4, says(**ends()))):
        run = bench.start("toy")
        bench.run(run, 1)
        results = at_once([lambda b=b: bench.run(run, 2, b) for b in range(4)])
        assert results == [(None, True)] * 4
        bench.join(run, 2)
    assert bench.run_row(run).status == "failed" and bench.claims(run) == []


def test_a_fan_out_of_one_that_leads_to_the_end_has_the_whole_state(bench: Bench) -> None:
    """One Send is no chord: the node's own task ends the run, with the notes of the steps before."""

    def spread(_state: Any, _resources: Any) -> dict[str, Any]:
        return {"notes": ["seen: before the fan-out"], **ends("from before")}

    builder = fan_out(says(log=["item"]), 1)
    builder.nodes["spread"].runnable.func = lambda state, config: spread(state, None)
    with pipeline("toy", builder):
        run = bench.start("toy")
        bench.heal()
        row = bench.run_row(run)
    assert (row.status, row.answer, row.notes) == ("answered", "from before", ["seen: before the fan-out"])


def test_a_fan_out_of_one_that_is_cut_off_keeps_its_notes(bench: Bench) -> None:
    bench.script.verdicts = {**dict.fromkeys("BC", ("unparsed", None)), "A": ("relevant", 0.9)}
    run = bench.start(rule="confidence", max_steps=4)  # 4 is the one document to refine
    bench.heal()
    row = bench.run_row(run)
    assert row.reason == "no answer within 4 steps"
    assert [note.split(":")[0] for note in row.notes] == ["grade_unparsed"] * 2


# -- fallback, and paid once --------------------------------------------------------------------------------


def test_the_web_is_tried_again_and_replaced_at_the_last_attempt(make_bench: Any) -> None:
    bench = make_bench(max_attempts=3)
    bench.script.verdicts = {**dict.fromkeys("BC", ("not_relevant", 0.1)), "A": ("relevant", 0.9)}
    bench.script.web = TransientError("busy", code="rate_limit", where="tavily")
    run = bench.start()
    bench.heal()
    row = bench.run_row(run)
    assert (row.status, row.web_used) == ("answered", False)
    assert row.notes == ["web_search_failed: rate_limit: busy"]
    searches = [status for node, _, status in statuses(bench, run) if node == "web_search"]
    assert searches == ["retried", "retried", "succeeded"]


def test_a_call_is_paid_once_when_the_worker_dies_between_the_call_and_the_commit(bench: Bench) -> None:
    spec = CallSpec("answer_generator", "openai", "gpt-4.1-mini", "v", {"human": "q"})
    paid: list[int] = []

    def perform() -> CallResult:
        paid.append(1)
        return CallResult("the answer", 100, 20)

    def make(_plan: Any, recorder: Any) -> Any:
        resources = bench.script.resources()

        class Generator:
            def answer(self, _question: str, _documents: Any) -> GeneratedAnswer:
                text = recorder.call(spec, perform)
                if len(bench.transitions(run)) == 1:  # the first attempt of this node: it dies here
                    bench.lose(run)
                    reconcile.take_back_lost(bench.engine)
                return GeneratedAnswer(text, (0,))

        object.__setattr__(resources, "answer_generator", Generator())
        return resources

    bench.make_resources = make
    run = bench.start("rag")
    bench.heal()
    assert bench.run_row(run).answer == "the answer" and len(paid) == 1
    assert statuses(bench, run) == [
        ("retrieve", 1, "succeeded"),
        ("generate", 1, "lost"),
        ("generate", 2, "succeeded"),
    ]
    tokens = [row.input_tokens for row in bench.transitions(run)]
    assert tokens == [None, 100, None], "what was paid stands with the attempt that paid, lost as it is"
    assert bench.one("SELECT sum(input_tokens) AS n FROM model_calls").n == 100


def test_local_calls_are_rows_only_of_attempts_that_counted(bench: Bench) -> None:
    spec = CallSpec("answer_generator", "local", "minilm", "none", {"q": "q"})
    tries: list[int] = []

    def make(_plan: Any, recorder: Any) -> Any:
        recorder.call(spec, lambda: CallResult("x"))
        tries.append(1)
        if len(tries) == 1:
            raise BUSY
        return bench.script.resources()

    bench.make_resources = make
    with pipeline("toy", one(says(**ends()))):
        run = bench.start("toy")
        bench.heal()
        assert bench.run_row(run).status == "answered"
    assert [row.attempt for row in bench.rows("SELECT attempt FROM model_calls")] == [2]


# -- suspects -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("losses", "max_attempts", "alone"), [(1, 4, False), (2, 4, True), (1, 2, True)])
def test_a_claim_that_was_lost_twice_or_has_one_try_left_runs_alone_among_its_like(
    make_bench: Any, losses: int, max_attempts: int, alone: bool
) -> None:
    """Two runs whose workers died: while the one is tried again in this process, the other waits its turn
    without using up an attempt. But what one killed worker had does not wait for each other."""
    bench: Bench = make_bench(max_attempts=max_attempts)
    together: list[int] = []
    inside, both, go_on = threading.Event(), threading.Event(), threading.Event()

    def node(state: Any, _resources: Any) -> dict[str, Any]:
        together.append(1)
        inside.set()
        if len(together) == 2:
            both.set()
        assert go_on.wait(20)
        return ends()

    with pipeline("toy", one(node)):
        runs = [bench.start("toy") for _ in range(2)]
        for _ in range(losses):
            for run in runs:
                bench.must_win(run, 1)
                bench.lose(run)
            reconcile.take_back_lost(bench.engine)
        threads = [threading.Thread(target=bench.run, args=(run, 1)) for run in runs]
        threads[0].start()
        assert inside.wait(20)
        if alone:
            assert bench.run(runs[1], 1) == (None, False)
            (claim,) = bench.claims(runs[1])
            assert (claim.status, claim.attempt, claim.lost) == ("ready", losses, losses)
        else:
            threads[1].start()
            assert both.wait(20)
        go_on.set()
        for thread in threads[: 1 if alone else 2]:
            thread.join(20)
        bench.heal()
        assert [bench.run_row(run).status for run in runs] == ["answered"] * 2
    assert len(together) == 2


def test_the_suspects_of_a_step_go_by_their_losses(bench: Bench) -> None:
    run = bench.start()
    bench.run(run, 1)
    for branch, losses in ((0, 2), (1, 3), (2, 2)):
        for _ in range(losses):
            bench.must_win(run, 2, branch)
            bench.lose(run)
            reconcile.take_back_lost(bench.engine)
    assert [bench.run(run, 2, branch)[1] for branch in (0, 2, 1)] == [False, False, True]
    bench.overdue()
    assert [bench.run(run, 2, branch)[1] for branch in (2, 0)] == [False, True]
    bench.overdue()
    assert bench.run(run, 2, 2)[1]
    assert bench.join(run, 2) is not None


# -- numbers ------------------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_cap_with_jitter_and_retry_after_goes_first(make_bench: Any) -> None:
    settings = make_bench(retry_base=1, retry_cap=10).settings
    for attempt, longest in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (50, 10), (5000, 10)):
        pauses = {pause_after(attempt, None, settings) for _ in range(40)}
        assert all(longest / 2 <= pause <= longest for pause in pauses) and len(pauses) > 1
    assert 70 <= pause_after(1, 70, settings) <= 70.5
    assert 0 <= pause_after(1, -5, settings) <= 0.5


def test_usage_of_an_attempt_is_none_where_nobody_said_any() -> None:
    assert claims.Usage() == claims.Usage(None, None, None)
