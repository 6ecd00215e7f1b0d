"""The gate between the ledger and a provider: whose fault a failed call is, and who waits for what."""

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from shared import control
from shared.errors import CallError, PermanentError, Postponed, TransientError
from shared.limits import states
from shared.settings import Settings
from tests.integration.runner.bench import Bench, pipeline
from tests.integration.runner.graphs import Node, ends, fan_out, one, says
from workers.models.rate_headers import heard
from workers.models.roles import CallResult, CallSpec
from workers.runner import ledger, reconcile
from workers.runner.execute import Executor
from workers.runner.ledger import WEB_ROLE
from workers.runner.limits.limiter import Limiter
from workers.runner.limits.waiting import WaitingRecorder

BUSY = TransientError("rate limit reached (HTTP 429)", code="rate_limited", where="openai", retry_after=5)
DOWN = TransientError("the server could not be reached", code="unreachable", where="openai")
BROKEN = TransientError("the server failed (HTTP 500)", code="server_error", where="openai")


def gated(make_bench: Any, redis: Redis, **values: Any) -> Bench:
    """A bench whose calls pass a limiter, and whose recorder is what a node gets as its resources."""
    bench: Bench = make_bench(**values)
    limiter = Limiter(bench.settings, redis)
    bench.executor = Executor(bench.engine, bench.settings, bench, bench.heartbeat, "bench@test", limiter)
    bench.make_resources = lambda plan, recorder: recorder  # type: ignore[return-value]
    return bench


def calls(
    perform: Callable[[], CallResult], role: str = "answer_generator", provider: str = "openai"
) -> Node:
    """A node of one paid call, whose request differs from run to run."""

    def node(_state: Any, recorder: Any) -> dict[str, Any]:
        recorder.call(CallSpec(role, provider, "gpt-4.1-mini", "v", {"query": "q"}), perform)
        return ends("at last")

    return node


def another(error: Exception) -> Exception:
    """Its like, because the gate marks the one it sees."""
    if not isinstance(error, CallError):
        return error
    words = {
        "code": error.code,
        "where": error.where,
        "retry_after": error.retry_after,
        "status": error.status,
    }
    return type(error)(str(error), **words)


def one_after_another(*outcomes: Exception | None) -> Callable[[], CallResult]:
    left = list(outcomes)

    def perform() -> CallResult:
        error = left.pop(0) if left else None
        if error is not None:
            raise another(error)
        return CallResult("answer", 100, 20)

    return perform


def history(bench: Bench, run: int) -> list[tuple[int, str]]:
    return [(row.attempt, row.status) for row in bench.transitions(run)]


def again(bench: Bench, redis: Redis, run: int) -> None:
    """The waiting is over: everywhere."""
    redis.flushdb()
    bench.overdue()
    bench.run(run, 1)


def test_a_429_is_a_transition_but_no_counted_attempt(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis, max_attempts=2)
    with pipeline("toy", one(calls(one_after_another(*[BUSY] * 5)))):
        run = bench.start("toy")
        bench.run(run, 1)
        (claim,) = bench.claims(run)
        assert (claim.attempt, claim.forgiven) == (1, 1) and claim.failing_since is not None
        pause = bench.one("SELECT extract(epoch FROM not_before - now()) AS s FROM claims").s
        assert 4 < pause < 6
        for _ in range(5):
            again(bench, redis, run)
    assert bench.run_row(run).status == "answered"
    assert history(bench, run) == [(n, "retried") for n in range(1, 6)] + [(6, "succeeded")]
    assert {row.error for row in bench.transitions(run)[:5]} == {
        "rate_limited: rate limit reached (HTTP 429) (not counted)"
    }
    assert bench.one("SELECT count(*) AS n FROM model_calls WHERE status = 'error'").n == 5


def test_patience_ends_and_then_attempts_count_and_end_too(make_bench: Any, redis: Redis) -> None:
    """A question that is refused for ever must not stay for ever."""
    bench = gated(make_bench, redis, max_attempts=3, patience_seconds=3600)
    with pipeline("toy", one(calls(one_after_another(*[BUSY] * 99)))):
        run = bench.start("toy")
        bench.run(run, 1)
        again(bench, redis, run)
        bench.execute("UPDATE claims SET failing_since = now() - interval '2 hours'")
        for _ in range(3):
            assert bench.run_row(run).status == "running"
            again(bench, redis, run)
    row = bench.run_row(run)
    assert row.status == "failed"
    assert row.error.endswith("(HTTP 429) (after 3 attempts, and 2 that did not count)")
    assert [status for _, status in history(bench, run)] == ["retried"] * 4 + ["failed"]


def test_after_a_429_others_wait_without_a_call(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis)
    made: list[int] = []

    def perform() -> CallResult:
        made.append(1)
        raise TransientError("slow down", code="rate_limited", where="openai", retry_after=30)

    with pipeline("toy", one(calls(perform))):
        runs = [bench.start("toy") for _ in range(10)]
        for run in runs:
            bench.run(run, 1)
        assert len(made) == 1
        assert [history(bench, run) for run in runs[1:]] == [[]] * 9
        waits = [
            row.s for row in bench.rows("SELECT extract(epoch FROM not_before - now()) AS s FROM claims")
        ]
        assert (
            all(wait < 35 for wait in waits)
            and max(waits) > 10
            and len({round(wait, 1) for wait in waits}) > 3
        )
        assert states(redis)[0].waiting == 10


def test_an_outage_burns_attempts_only_until_it_is_known(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis, max_attempts=2, breaker_failures=3)
    outage = [DOWN]

    def perform() -> CallResult:
        if outage:
            raise outage[0]
        return CallResult("answer", 100, 20)

    with pipeline("toy", one(calls(perform))):
        runs = [bench.start("toy") for _ in range(6)]
        for run in runs:
            bench.run(run, 1)
        claims = [bench.claims(run)[0] for run in runs]
        assert [claim.attempt for claim in claims] == [1, 1, 1, 0, 0, 0]
        assert [claim.forgiven for claim in claims] == [0, 0, 1, 0, 0, 0]
        assert [claim.failing_since is not None for claim in claims] == [False, False, True, True, True, True]
        for _ in range(8):  # probes fail, one after the other, and count for nobody
            _let_a_probe_through(redis)
            bench.overdue()
            for publication, branch in reconcile.due(bench.engine, bench.settings):
                bench.run(publication.run_id, publication.step, branch)
        assert bench.rows("SELECT 1 FROM runs WHERE status <> 'running'") == []
        outage.clear()
        redis.flushdb()
        bench.heal()
    rows = bench.rows("SELECT status, count(*) AS n FROM runs GROUP BY status")
    assert [(row.status, row.n) for row in rows] == [("answered", 6)]
    counted = "SELECT count(*) AS n FROM transitions WHERE status = 'retried'"
    assert bench.one(counted).n == 3 + 8, "each call that was made is in the history"


def _let_a_probe_through(redis: Redis) -> None:
    (key,) = redis.keys("cragline:limits:breaker:*")
    redis.hset(key, "open", "1")


def test_a_question_that_breaks_its_server_is_failed_while_others_pass(make_bench: Any, redis: Redis) -> None:
    """Poison: it comes to its last attempt, and the breaker stays closed."""
    bench = gated(make_bench, redis, max_attempts=3, breaker_failures=2)
    with pipeline("toy", one(calls(one_after_another(*[BROKEN] * 9)))):
        run = bench.start("toy")
        bench.heal()
        assert bench.run_row(run).status == "failed"
    assert [status for _, status in history(bench, run)] == ["retried", "retried", "failed"]
    assert states(redis)[0].breaker == "closed"


def test_a_server_that_says_it_is_overloaded_is_out_even_for_one_question(
    make_bench: Any, redis: Redis
) -> None:
    bench = gated(make_bench, redis, max_attempts=2, breaker_failures=2)
    overloaded = TransientError("HTTP 503", code="server_error", where="openai", status=503)
    with pipeline("toy", one(calls(one_after_another(*[overloaded] * 2)))):
        run = bench.start("toy")
        bench.run(run, 1)
        bench.overdue()
        bench.run(run, 1)
        assert states(redis)[0].breaker == "open"
        again(bench, redis, run)
    assert bench.run_row(run).status == "answered"


def test_the_web_is_waited_for_only_so_long(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis, max_attempts=1, breaker_failures=1, web_patience_seconds=60)
    down = TransientError("cut off", code="unreachable", where="tavily")
    node = calls(one_after_another(*[down] * 99), WEB_ROLE, "tavily")
    with pipeline("toy", one(node)):
        run = bench.start("toy")
        bench.run(run, 1)
        bench.overdue()
        assert bench.run(run, 1) == (None, False), "the breaker is open: put back"
        assert bench.run_row(run).status == "running"
        bench.execute("UPDATE claims SET failing_since = now() - interval '61 s'")
        bench.overdue()
        bench.run(run, 1)
    assert bench.run_row(run).error.startswith("work: provider_out: the provider does not work (after 1 att")


def test_an_outage_that_outlasts_patience_fails_the_steps_that_no_probe_comes_from(
    make_bench: Any, redis: Redis
) -> None:
    """One call a pause goes through: hundreds of others would wait for days."""
    bench = gated(make_bench, redis, max_attempts=2, breaker_failures=1, patience_seconds=3600)
    made: list[int] = []

    def perform() -> CallResult:
        made.append(1)
        raise another(DOWN)

    def waited(failing: str, out: float) -> None:
        bench.execute("UPDATE claims SET failing_since = now() - CAST(:t AS interval)", t=failing)
        (key,) = redis.keys("cragline:limits:breaker:*")
        seconds = redis.time()[0]
        redis.hset(key, mapping={"since": seconds - out, "open": seconds + 60})
        bench.overdue()

    with pipeline("toy", one(calls(perform))):
        prober, run = bench.start("toy"), bench.start("toy")
        bench.run(prober, 1)
        assert bench.run(run, 1) == (None, False)
        for failing, out in (("59 minutes", 9000), ("3 hours", 600)):
            waited(failing, out)
            assert bench.run(run, 1) == (None, False), "this outage, or this step's part in it, is young"
            assert history(bench, run) == []
        for _ in range(2):
            waited("2 hours", 9000)
            bench.run(run, 1)
    assert len(made) == 1
    assert bench.run_row(run).error == "work: provider_out: the provider does not work (after 2 attempts)"


def test_the_time_of_a_pause_is_none_of_a_failing_provider(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis, max_attempts=1, patience_seconds=3600)
    with pipeline("toy", one(calls(one_after_another(BUSY, BUSY)))):
        run = bench.start("toy")
        bench.run(run, 1)
        batch = bench.run_row(run).batch_id
        control.pause(bench.engine, batch, actor="ada")
        bench.execute("UPDATE claims SET failing_since = now() - interval '9 hours'")
        control.resume(bench.engine, batch, actor="ada")
        again(bench, redis, run)
        assert bench.run_row(run).status == "running"
        again(bench, redis, run)
    assert bench.run_row(run).status == "answered"


def test_other_errors_count_and_say_that_the_server_is_there(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis, breaker_failures=1)
    refused = PermanentError("the key was refused", code="bad_key", where="openai")
    with pipeline("toy", one(calls(one_after_another(refused)))):
        run = bench.start("toy")
        bench.run(run, 1)
    assert bench.run_row(run).status == "failed" and states(redis)[0].breaker == "closed"


def test_what_was_paid_before_a_node_was_put_back_is_in_its_transition(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis)
    paid: list[int] = []

    def perform() -> CallResult:
        paid.append(1)
        return CallResult("x", 100, 20)

    def node(_state: Any, recorder: Any) -> dict[str, Any]:
        recorder.call(CallSpec("query_rewriter", "openai", "gpt-4.1-mini", "v", {"n": 1}), perform)
        if len(paid) == 1:
            paid.append(0)
            raise Postponed(0.0, "the second call's rate limit")
        recorder.call(CallSpec("query_rewriter", "openai", "gpt-4.1-mini", "v", {"n": 2}), perform)
        return ends("at last")

    with pipeline("toy", one(node)):
        run = bench.start("toy")
        assert bench.run(run, 1) == (None, False)
        bench.run(run, 1)
    (row,) = bench.transitions(run)
    assert (row.attempt, row.input_tokens, sum(paid)) == (1, 200, 2)


def test_limits_are_learned_from_replies_and_tokens_given_back(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis)

    def perform() -> CallResult:
        heard({"x-ratelimit-limit-tokens": "62000", "x-ratelimit-limit-requests": "620"})
        return CallResult("answer", 100, 20)

    with pipeline("toy", one(calls(perform))):
        for _ in range(2):
            bench.run(bench.start("toy"), 1)
    (state,) = states(redis)
    assert (state.requests_per_minute, state.tokens_per_minute) == (620, 62000)
    (key,) = redis.keys("cragline:limits:rate:*")
    level = float(redis.hget(key, "level_tokens") or 0)
    assert level == pytest.approx(2000 - 120, abs=2), "what was used, not what was reserved"


def test_branches_of_a_fan_out_wait_on_their_own(make_bench: Any, redis: Redis) -> None:
    bench = gated(make_bench, redis, requests_per_minute=1)

    def item(task: Any, recorder: Any) -> dict[str, Any]:
        spec = CallSpec("relevance_grader", "openai", "gpt-4.1-mini", "v", {"n": task["at"]})
        recorder.call(spec, lambda: CallResult("x", 100, 20))
        return {}

    with pipeline("toy", fan_out(item, 5, says(**ends()))):
        run = bench.start("toy")
        bench.run(run, 1)
        over = [bench.run(run, 2, branch)[1] for branch in range(5)]
        assert over == [True, False, False, False, False]
        assert [claim.attempt for claim in bench.claims(run)] == [1, 0, 0, 0, 0]
        assert bench.join(run, 2) is None
        for branch in range(1, 5):
            redis.flushdb()
            bench.overdue()
            assert bench.run(run, 2, branch)[1]
        bench.join(run, 2)
        bench.heal()
    assert bench.run_row(run).status == "answered"


def test_a_task_of_many_calls_is_put_back_before_its_claim_runs_out(
    make_bench: Any, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has paid for is stored, so it goes on where it was."""
    monkeypatch.setattr(ledger, "WAITING", 1.0)
    bench = gated(make_bench, redis, requests_per_minute=62)
    paid: list[int] = []

    def node(_state: Any, recorder: Any) -> dict[str, Any]:
        for n in range(6):
            spec = CallSpec("relevance_grader", "openai", "gpt-4.1-mini", "v", {"strip": n})
            recorder.call(spec, lambda n=n: paid.append(n) or CallResult("x", 100, 20))
        return ends("at last")

    with pipeline("toy", one(node)):
        run = bench.start("toy")
        assert bench.run(run, 1) == (None, False), "two at once, one or two after a short wait, and no more"
        assert 2 <= len(paid) < 6
        again(bench, redis, run)
        again(bench, redis, run)
    assert bench.run_row(run).status == "answered"
    assert paid == list(range(6))
    (row,) = bench.transitions(run)
    assert (row.attempt, row.input_tokens) == (1, 600)


def test_ingest_waits_for_its_turn_and_is_told_of_a_provider_that_is_out(redis: Redis) -> None:
    limiter = Limiter(Settings(_env_file=None, requests_per_minute=600, breaker_failures=1), redis)
    recorder = WaitingRecorder(limiter, "http://models", "ingest 1", 30)
    spec = CallSpec("embedder", "openai", "m", "none", {"texts": 1}, reusable=False, size=300)
    assert recorder.call(spec, lambda: CallResult("vectors", 100)) == "vectors"
    assert states(redis)[0].requests_per_minute == 600

    def down() -> CallResult:
        raise DOWN

    with pytest.raises(TransientError, match="could not be reached"):
        recorder.call(spec, down)
    with pytest.raises(TransientError, match="does not work") as raised:
        recorder.call(spec, lambda: pytest.fail("the breaker is open"))
    assert raised.value.retry_after is not None and raised.value.retry_after > 0
