"""Caps on cost and tokens: held by reservations, however many threads call at once."""

import random
import threading
import time
from typing import Any

import pytest

from shared import control
from shared.batches import Terms
from shared.budget import Caps, set_caps, spending
from shared.db import transaction
from shared.errors import NotFound, Postponed, TransientError, UsageError
from tests.integration.cluster import rows
from tests.integration.runner.bench import Bench, at_once
from workers.models.calls import UnusableOutput
from workers.models.roles import CallResult, CallSpec
from workers.runner import reconcile
from workers.runner.claims import Won
from workers.runner.ledger import WEB_ROLE, Ledger
from workers.runner.limits import reservations
from workers.runner.limits.estimates import Estimates
from workers.runner.limits.gate import Gate
from workers.runner.limits.reservations import NotOpen


def spec(n: int, words: int = 300) -> CallSpec:
    return CallSpec("answer_generator", "openai", "gpt-4.1-mini", "v", {"human": f"{n} " + "word " * words})


def paid(tokens_in: int | None = 700, tokens_out: int | None = 100) -> CallResult:
    return CallResult("answer", tokens_in, tokens_out)


def submitted(bench: Bench, caps: Caps, questions: int = 1) -> tuple[int, list[Won]]:
    """A batch with these caps, and the first claim of each of its runs."""
    made = rows([f"q{n}?" for n in range(questions)])
    from shared import batches

    batch = batches.submit(bench.engine, bench.plan("rag"), "b", {}, made, Terms(caps=caps)).batch_id
    bench.admit()
    found = bench.rows("SELECT id FROM runs WHERE batch_id = :b ORDER BY id", b=batch)
    return batch, [bench.must_win(row.id, 1) for row in found]


def stored_cost(bench: Bench, batch: int) -> float:
    query = "SELECT coalesce(sum(cost_usd), 0) AS usd FROM model_calls WHERE batch_id = :b"
    return float(bench.one(query, b=batch).usd)


def test_sixteen_threads_never_pay_more_than_the_cap_and_one_call(bench: Bench) -> None:
    """Each call costs less than its estimate, or a little more."""
    cap = 0.03
    batch, won = submitted(bench, Caps(max_cost_usd=cap), questions=16)
    gate = Gate(bench.engine, bench.settings)
    costs: list[float] = []
    seen: list[float] = []

    def work(own: Won) -> None:
        ledger, dice = Ledger(bench.engine, own, gate), random.Random(own.run_id)
        for n in range(60):
            try:
                ledger.call(spec(n), lambda: paid(700, dice.randint(50, 500)))
            except NotOpen:
                return
            except Postponed:
                continue
            now = spending(bench.engine, batch)
            assert now is not None
            seen.append(now.spent_usd)
        raise AssertionError("it was never paused")

    results = at_once([lambda w=w: work(w) for w in won])
    assert results == [None] * 16
    costs = [float(row.cost_usd) for row in bench.rows("SELECT cost_usd FROM model_calls")]
    assert cap * 0.9 < sum(costs) <= cap + max(costs), "not above it, and not far below it either"
    now = spending(bench.engine, batch)
    assert now is not None and (now.under_way, now.reserved_usd) == (0, 0)
    assert now.spent_usd == pytest.approx(sum(costs))
    row = bench.one("SELECT status, pause_reason FROM batches WHERE id = :b", b=batch)
    assert row.status == "paused" and row.pause_reason.startswith("max_cost 0.0300 USD reached: 0.0")
    (event,) = bench.rows("SELECT actor, reason FROM events WHERE action = 'paused'")
    assert event.actor == "system" and event.reason == row.pause_reason


def test_a_batch_at_its_cap_pauses_and_goes_on_with_a_higher_one(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps(max_tokens=1500))
    ledger = Ledger(bench.engine, won, Gate(bench.engine, bench.settings))
    assert ledger.call(spec(1), lambda: paid(700, 100)) == "answer"
    with pytest.raises(Postponed):
        ledger.call(spec(2), lambda: pytest.fail("not to be paid for"))
    progress = bench.one("SELECT * FROM batch_progress")
    assert (progress.status, progress.max_tokens, progress.tokens_left, progress.tokens) == (
        "paused",
        1500,
        700,
        800,
    )
    assert progress.pause_reason.startswith("max_tokens 1500 reached: 800 tokens spent, and the next")
    assert (progress.max_cost_usd, progress.usd_left) == (None, None)
    with pytest.raises(UsageError, match="max_tokens 800 reached: 800 tokens spent"):
        control.resume(bench.engine, batch, actor="ada", caps=Caps(max_tokens=800))
    assert control.resume(bench.engine, batch, actor="ada", caps=Caps(max_tokens=5000)).changed
    (event,) = bench.rows("SELECT detail FROM events WHERE action = 'resumed'")
    assert event.detail["max_tokens"] == 5000
    assert ledger.call(spec(2), lambda: paid(700, 100)) == "answer"
    assert bench.one("SELECT tokens_left FROM batch_progress").tokens_left == 3400
    assert not control.resume(bench.engine, batch, actor="ada", caps=Caps(max_tokens=0)).changed
    assert bench.one("SELECT max_tokens FROM batches").max_tokens is None


@pytest.mark.parametrize(
    "told", [(-900_000, -900_000), (10**19, 10**30), (2**63 - 1, "7"), (0, 0), (None, 0.5)]
)
def test_a_provider_that_lies_about_its_tokens_is_paid_once_and_gives_no_money_back(
    bench: Bench, told: Any
) -> None:
    batch, (won,) = submitted(bench, Caps(max_cost_usd=1.0))
    gate = Gate(bench.engine, bench.settings)
    ledger = Ledger(bench.engine, won, gate)
    estimate = gate._estimates.of(spec(1), won.plan.prices)
    assert ledger.call(spec(1), lambda: paid(*told)) == "answer"
    assert ledger.call(spec(1), lambda: pytest.fail("it is stored")) == "answer"
    now = spending(bench.engine, batch)
    assert now is not None and (now.spent_tokens, now.under_way) == (estimate.tokens, 0)
    assert now.spent_usd == pytest.approx(estimate.cost_usd)
    row = bench.one("SELECT input_tokens, output_tokens, cost_usd FROM model_calls")
    assert (row.input_tokens, row.output_tokens, row.cost_usd) == (None, None, None)


def test_half_of_a_usage_is_completed_from_the_estimate(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps(max_cost_usd=1.0))
    gate = Gate(bench.engine, bench.settings)
    estimate = gate._estimates.of(spec(1), won.plan.prices)
    Ledger(bench.engine, won, gate).call(spec(1), lambda: paid(None, 100))
    now = spending(bench.engine, batch)
    assert now is not None and now.spent_tokens == estimate.input_tokens + 100
    assert now.spent_usd > stored_cost(bench, batch) > 0


def test_the_executor_puts_back_what_the_cap_stops_without_an_attempt(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps(max_tokens=100))

    def make(_plan: Any, recorder: Any) -> Any:
        recorder.call(spec(1), lambda: pytest.fail("not to be paid for"))

    bench.make_resources = make
    bench.lose(won.run_id)
    bench.execute("UPDATE claims SET status = 'ready', lease_until = NULL, attempt = 0")
    assert bench.run(won.run_id, 1) == (None, False)
    assert (bench.claims(won.run_id)[0].status, bench.claims(won.run_id)[0].attempt) == ("ready", 0)
    assert bench.one("SELECT status FROM batches WHERE id = :b", b=batch).status == "paused"
    assert bench.transitions(won.run_id) == []


def test_reservations_of_others_make_a_call_wait_but_do_not_pause(bench: Bench) -> None:
    batch, won = submitted(bench, Caps(max_tokens=2500), questions=2)
    gate = Gate(bench.engine, bench.settings)

    def while_under_way() -> CallResult:
        with pytest.raises(Postponed):
            Ledger(bench.engine, won[1], gate).call(spec(2), lambda: paid())
        assert bench.one("SELECT status FROM batches").status == "open"
        return paid(700, 10)

    Ledger(bench.engine, won[0], gate).call(spec(1), while_under_way)
    Ledger(bench.engine, won[1], gate).call(spec(2), lambda: paid(700, 10))
    now = spending(bench.engine, batch)
    assert now is not None and now.spent_tokens == 1420


def test_what_a_call_failed_with_counts_and_its_reservation_goes(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps(max_cost_usd=1))
    ledger = Ledger(bench.engine, won, Gate(bench.engine, bench.settings))

    def useless() -> CallResult:
        raise UnusableOutput("no answer", where="openai", input_tokens=1000, output_tokens=100)

    with pytest.raises(UnusableOutput):
        ledger.call(spec(1), useless)
    with pytest.raises(ZeroDivisionError):
        ledger.call(spec(2), lambda: CallResult(1 // 0))
    now = spending(bench.engine, batch)
    assert now is not None and now.under_way == 0
    assert now.spent_usd == pytest.approx(stored_cost(bench, batch)) and now.spent_tokens == 1100


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (TransientError("no answer within 4 s", code="timeout", where="openai"), True),
        (UnusableOutput("the reply could not be read", where="openai"), True),
        (TransientError("rate limit reached", code="rate_limited", where="openai"), False),
        (TransientError("the server failed", code="server_error", where="openai", status=500), False),
    ],
)
def test_a_call_that_we_gave_up_may_be_on_the_bill(bench: Bench, error: Exception, counts: bool) -> None:
    """A provider that is slower than our patience is paid for each try: without it a cap would not hold."""
    batch, (won,) = submitted(bench, Caps(max_cost_usd=1))
    gate = Gate(bench.engine, bench.settings)
    estimate = gate._estimates.of(spec(1), won.plan.prices)

    def fails() -> CallResult:
        raise error

    with pytest.raises(type(error)):
        Ledger(bench.engine, won, gate).call(spec(1), fails)
    now = spending(bench.engine, batch)
    assert now is not None and now.under_way == 0
    assert now.spent_usd == pytest.approx(estimate.cost_usd if counts else 0)
    assert now.spent_tokens == (estimate.tokens if counts else 0)
    assert bench.one("SELECT cost_usd FROM model_calls").cost_usd is None, "what is not known is not claimed"


def test_an_answer_without_token_counts_is_taken_at_its_estimate(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps(max_cost_usd=1))
    Ledger(bench.engine, won, Gate(bench.engine, bench.settings)).call(spec(1), lambda: paid(None, None))
    now = spending(bench.engine, batch)
    assert now is not None and now.spent_tokens > 1000 and now.spent_usd > 0.001


def test_web_searches_count_with_their_price(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps(max_cost_usd=0.017))
    ledger = Ledger(bench.engine, won, Gate(bench.engine, bench.settings))
    for n in range(2):
        ledger.call(
            CallSpec(WEB_ROLE, "tavily", "search", "none", {"query": f"q{n}", "k": 3}), lambda: CallResult([])
        )
    with pytest.raises(Postponed):
        ledger.call(
            CallSpec(WEB_ROLE, "tavily", "search", "none", {"query": "more", "k": 3}), lambda: CallResult([])
        )
    assert float(bench.one("SELECT usd_left FROM batch_progress").usd_left) == pytest.approx(0.001)
    now = spending(bench.engine, batch)
    assert now is not None and now.spent_usd == pytest.approx(0.016)


def test_calls_of_lost_workers_count_as_they_were_estimated(bench: Bench) -> None:
    batch, won = submitted(bench, Caps(max_cost_usd=1), questions=2)
    estimate = Estimates().of(spec(1), {})
    for own in won:
        assert reservations.reserve(bench.engine, own, "r", estimate) is not None
    bench.lose(won[0].run_id)

    assert reservations.count_left_behind(bench.engine) == 0, "the worker may only be slow"
    reconcile.take_back_lost(bench.engine)
    assert [reservations.count_left_behind(bench.engine) for _ in range(2)] == [1, 0]
    now = spending(bench.engine, batch)
    assert now is not None and now.under_way == 1 and now.reserved_usd == pytest.approx(estimate.cost_usd)
    assert (now.spent_usd, now.spent_tokens) == (pytest.approx(estimate.cost_usd), estimate.tokens)


def test_a_worker_that_was_only_thought_lost_settles_what_its_call_did_cost(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps(max_cost_usd=1))

    def slow() -> CallResult:
        bench.lose(won.run_id)
        reconcile.take_back_lost(bench.engine)
        assert reservations.count_left_behind(bench.engine) == 1
        return paid(1000, 0)

    Ledger(bench.engine, won, Gate(bench.engine, bench.settings)).call(spec(1), slow)
    now = spending(bench.engine, batch)
    assert now is not None and now.spent_tokens == 1000
    assert now.spent_usd == pytest.approx(stored_cost(bench, batch))


@pytest.mark.parametrize("act", ["pause", "cancel"])
def test_nothing_is_paid_for_once_a_batch_is_paused_or_cancelled(bench: Bench, act: str) -> None:
    batch, (won,) = submitted(bench, Caps())
    ledger = Ledger(bench.engine, won, Gate(bench.engine, bench.settings))
    ledger.call(spec(1), paid)
    getattr(control, act)(bench.engine, batch, actor="ada")
    began = time.monotonic()
    with pytest.raises(NotOpen):
        ledger.call(spec(2), lambda: pytest.fail("not to be paid for"))
    assert time.monotonic() - began < 5
    assert ledger.call(spec(1), lambda: pytest.fail("stored already")) == "answer"


def test_caps_that_are_set_later_begin_with_what_was_spent(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps())
    ledger = Ledger(bench.engine, won, Gate(bench.engine, bench.settings))
    ledger.call(spec(1), paid)
    ledger.call(
        CallSpec(WEB_ROLE, "tavily", "search", "none", {"query": "q", "k": 3}), lambda: CallResult([])
    )
    assert spending(bench.engine, batch) is None
    with transaction(bench.engine) as session:
        set_caps(session, batch, Caps(max_cost_usd=2))
    now = spending(bench.engine, batch)
    assert now is not None and now.caps == Caps(2, None)
    assert now.spent_usd == pytest.approx(stored_cost(bench, batch) + 0.008) and now.spent_tokens == 800
    with pytest.raises(NotFound), transaction(bench.engine) as session:
        set_caps(session, 10**6, Caps(max_cost_usd=2))


def test_what_is_spent_without_a_cap_counts_for_the_next_one(bench: Bench) -> None:
    """Taken away for a while, and given to a batch whose call is under way."""
    batch, (won,) = submitted(bench, Caps(max_cost_usd=1))
    ledger = Ledger(bench.engine, won, Gate(bench.engine, bench.settings))
    ledger.call(spec(1), paid)
    control.resume(bench.engine, batch, actor="ada", caps=Caps(max_cost_usd=0))
    ledger.call(spec(2), paid)

    def capped_meanwhile() -> CallResult:
        control.resume(bench.engine, batch, actor="ada", caps=Caps(max_cost_usd=2))
        return paid()

    ledger.call(spec(3), capped_meanwhile)
    now = spending(bench.engine, batch)
    assert now is not None and now.spent_tokens == 2400
    assert now.spent_usd == pytest.approx(stored_cost(bench, batch))


def test_a_cap_that_comes_while_the_first_call_is_under_way_counts_it(bench: Bench) -> None:
    batch, (won,) = submitted(bench, Caps())

    def capped_meanwhile() -> CallResult:
        control.resume(bench.engine, batch, actor="ada", caps=Caps(max_tokens=10_000))
        return paid()

    Ledger(bench.engine, won, Gate(bench.engine, bench.settings)).call(spec(1), capped_meanwhile)
    now = spending(bench.engine, batch)
    assert now is not None and now.spent_tokens == 800


def test_a_call_that_is_being_stored_while_the_first_cap_comes_is_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, (won,) = submitted(bench, Caps())
    real, settled = reservations.settle, threading.Event()

    def slowly(*arguments: Any) -> None:
        real(*arguments)
        settled.set()
        time.sleep(0.3)  # its transaction is not over yet

    monkeypatch.setattr(reservations, "settle", slowly)

    def cap() -> None:
        assert settled.wait(10)
        control.resume(bench.engine, batch, actor="ada", caps=Caps(max_tokens=10_000))

    ledger = Ledger(bench.engine, won, Gate(bench.engine, bench.settings))
    assert at_once([cap, lambda: ledger.call(spec(1), paid)]) == [None, "answer"]
    now = spending(bench.engine, batch)
    assert now is not None and now.spent_tokens == 800
