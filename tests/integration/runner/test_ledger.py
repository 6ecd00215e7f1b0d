"""Paid once: a call's result is a row before anything depends on it, and a repeated task reuses the row."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from shared.db import commit_patiently, make_engine, transaction
from shared.errors import PermanentError, TransientError
from tests.integration.runner.bench import Bench, Cut, at_once
from workers.models.calls import UnusableOutput
from workers.models.roles import CallResult, CallSpec
from workers.runner import reconcile
from workers.runner.claims import Won
from workers.runner.ledger import WEB_ROLE, Ledger, describe
from workers.runner.limits.gate import Gate

OPENAI = CallSpec("query_rewriter", "openai", "gpt-4.1-mini", "v1", {"human": "How old?"})
EMBEDDING = CallSpec("embedder", "openai", "text-embedding-3-small", "", {"texts": ["q"]}, reusable=False)
LOCAL = CallSpec("relevance_grader", "local", "minilm", "none", {"texts": ["q"]})
WEB = CallSpec(WEB_ROLE, "tavily", "search", "", {"query": "how old\x00", "max_results": 3})


class Counted:
    """A `perform` that counts how often it was called."""

    def __init__(self, response: Any = "answer", *, before: Callable[[], Any] = lambda: None) -> None:
        self.calls = 0
        self.response = response
        self.before = before

    def __call__(self) -> CallResult:
        self.calls += 1
        self.before()
        if isinstance(self.response, Exception):
            raise self.response
        return CallResult(self.response, 100, 20)


@pytest.fixture
def won(bench: Bench) -> Won:
    return bench.must_win(bench.start(), 1)


@pytest.fixture
def own_engine(bench: Bench) -> Iterator[Engine]:
    engine = make_engine(bench.engine.url.render_as_string(hide_password=False))
    yield engine
    engine.dispose()


def next_attempt(bench: Bench, won: Won) -> Won:
    bench.lose(won.run_id)
    reconcile.take_back_lost(bench.engine)
    return bench.must_win(won.run_id, won.step, won.branch)


@pytest.mark.parametrize("response", ["rewritten", {"label": "relevant", "score": 0.25}, [], "", 0, False])
def test_a_paid_call_is_performed_once_over_all_attempts(bench: Bench, won: Won, response: Any) -> None:
    perform = Counted(response)
    first = Ledger(bench.engine, won)
    assert first.call(OPENAI, perform) == response
    # The worker dies here: nothing of the node itself was committed.
    again = Ledger(bench.engine, next_attempt(bench, won))
    assert again.call(OPENAI, perform) == response
    assert perform.calls == 1
    assert first.usage().input_tokens == 100
    assert again.usage() == Ledger(bench.engine, won).usage(), "what was not paid again costs nothing again"
    (row,) = bench.rows("SELECT * FROM model_calls")
    assert (row.role, row.model, row.prompt_version, row.attempt) == (
        "query_rewriter",
        "gpt-4.1-mini",
        "v1",
        1,
    )
    assert (row.status, row.response, row.input_tokens, row.output_tokens) == ("ok", response, 100, 20)
    assert row.cost_usd is not None and row.cost_usd > 0 and row.node == "retrieve"


def test_another_request_branch_or_prompt_is_another_call(bench: Bench) -> None:
    run = bench.start()
    bench.run(run, 1)
    perform = Counted()
    ledgers = [Ledger(bench.engine, bench.must_win(run, 2, branch)) for branch in range(2)]
    for ledger in ledgers:
        ledger.call(OPENAI, perform)
        ledger.call(CallSpec("query_rewriter", "openai", "gpt-4.1-mini", "v2", OPENAI.request), perform)
        ledger.call(CallSpec("query_rewriter", "openai", "gpt-4.1-mini", "v1", {"human": "?"}), perform)
        ledger.call(OPENAI, perform)
    assert perform.calls == 6
    assert ledgers[0].usage().input_tokens == 300


def test_a_failed_call_is_recorded_with_what_it_cost_and_tried_again(bench: Bench, won: Won) -> None:
    perform = Counted(UnusableOutput("no query", where="openai", input_tokens=100, output_tokens=7))
    ledger = Ledger(bench.engine, won)
    with pytest.raises(UnusableOutput):
        ledger.call(OPENAI, perform)
    (row,) = bench.rows("SELECT * FROM model_calls")
    assert (row.status, row.error_class, row.error) == (
        "error",
        "UnusableOutput",
        "unusable_output: no query",
    )
    assert (row.input_tokens, row.output_tokens) == (100, 7) and row.cost_usd > 0
    assert bench.one("SELECT response IS NULL AS yes FROM model_calls").yes
    assert (ledger.usage().input_tokens, ledger.usage().output_tokens) == (100, 7)
    perform.response = "better"
    again = Ledger(bench.engine, next_attempt(bench, won))
    assert again.call(OPENAI, perform) == "better" and perform.calls == 2
    assert [row.status for row in bench.rows("SELECT status FROM model_calls ORDER BY id")] == ["error", "ok"]


def test_an_unexpected_error_is_recorded_without_its_words(bench: Bench, won: Won) -> None:
    perform = Counted(RuntimeError("refused key sk-hunter2-0123456789 of postgresql://u:hunter2@h/d"))
    with pytest.raises(RuntimeError):
        Ledger(bench.engine, won).call(OPENAI, perform)
    (row,) = bench.rows("SELECT * FROM model_calls")
    assert row.error_class == "RuntimeError" and "hunter2" not in str(row)


def test_an_embedding_is_performed_each_time_and_its_vector_is_not_kept(bench: Bench, won: Won) -> None:
    perform = Counted(None)
    perform.response = None
    Ledger(bench.engine, won).call(EMBEDDING, perform)
    second = Ledger(bench.engine, next_attempt(bench, won))
    second.call(EMBEDDING, perform)
    second.call(EMBEDDING, perform)
    assert perform.calls == 3
    rows = bench.rows("SELECT status, response FROM model_calls")
    assert [tuple(row) for row in rows] == [("ok", None)] * 3


def test_local_calls_wait_for_the_transaction_that_completes_their_node(bench: Bench, won: Won) -> None:
    perform = Counted([0.5])
    ledger = Ledger(bench.engine, won)
    assert ledger.call(LOCAL, perform) == [0.5]
    assert bench.rows("SELECT * FROM model_calls") == []
    with Session(bench.engine) as session:
        ledger.write_buffered(session)
        session.rollback()
    assert bench.rows("SELECT * FROM model_calls") == []
    with transaction(bench.engine) as session:
        ledger.write_buffered(session)
    (row,) = bench.rows("SELECT * FROM model_calls")
    assert (row.provider, row.response, row.cost_usd) == ("local", [0.5], 0)


def test_a_ledger_without_calls_writes_nothing(bench: Bench, won: Won) -> None:
    with transaction(bench.engine) as session:
        Ledger(bench.engine, won).write_buffered(session)
    assert bench.rows("SELECT * FROM model_calls") == []


def test_the_same_local_call_twice_in_a_node_does_not_break_its_commit(bench: Bench, won: Won) -> None:
    ledger = Ledger(bench.engine, won)
    for _ in range(2):
        ledger.call(LOCAL, Counted([0.5]))
    with transaction(bench.engine) as session:
        ledger.write_buffered(session)
    assert bench.rows("SELECT * FROM model_calls")


def test_a_web_search_is_a_row_of_its_own_table_and_reused(bench: Bench, won: Won) -> None:
    found = [{"title": "T\x00", "source": "http://x", "text": "\ud800", "score": 0.5}]
    clean = [{"title": "T\ufffd", "source": "http://x", "text": "\ufffd", "score": 0.5}]
    perform = Counted(found)
    assert Ledger(bench.engine, won).call(WEB, perform) == found
    assert Ledger(bench.engine, next_attempt(bench, won)).call(WEB, perform) == clean
    assert perform.calls == 1
    (row,) = bench.rows("SELECT * FROM web_searches")
    assert (row.query, row.results, row.status) == ("how old\ufffd", clean, "ok")
    assert bench.rows("SELECT * FROM model_calls") == []


def test_a_failed_web_search_is_recorded_and_tried_again(bench: Bench, won: Won) -> None:
    perform = Counted(TransientError("busy", code="rate_limit", where="tavily"))
    with pytest.raises(TransientError):
        Ledger(bench.engine, won).call(WEB, perform)
    assert bench.one("SELECT results IS NULL AS yes FROM web_searches").yes
    perform.response = []
    assert Ledger(bench.engine, next_attempt(bench, won)).call(WEB, perform) == []
    assert perform.calls == 2


def test_two_workers_with_the_same_call_at_once_both_get_an_answer(bench: Bench, won: Won) -> None:
    """A slow worker whose lease ran out, and its successor, store in the same moment. The successor owns
    the claim: a duplicate key must not be what fails its run."""
    successor = next_attempt(bench, won)
    ledgers = [Ledger(bench.engine, won), Ledger(bench.engine, successor)]
    late = Counted("of the slow one")

    def overtaken() -> None:
        ledgers[0].call(OPENAI, late)

    answer = ledgers[1].call(OPENAI, Counted("of the successor", before=overtaken))
    assert answer in ("of the slow one", "of the successor")
    stored = bench.rows("SELECT response FROM model_calls WHERE status = 'ok'")
    assert len(stored) == 1
    web = ledgers[1].call(WEB, Counted([], before=lambda: ledgers[0].call(WEB, Counted([]))))
    assert web == []


@pytest.mark.parametrize("seen", [False, True])
def test_a_paid_call_is_stored_once_whatever_becomes_of_the_connection(
    bench: Bench, won: Won, own_engine: Engine, seen: bool
) -> None:
    cut = Cut(own_engine, seen=seen)
    perform = Counted(before=lambda: setattr(cut, "left", 2))
    bench.execute("UPDATE batches SET max_cost_usd = 1 WHERE id = :b", b=won.batch_id)
    bench.execute("INSERT INTO budgets (batch_id, spent_usd, spent_tokens) VALUES (:b, 0, 0)", b=won.batch_id)
    ledger = Ledger(own_engine, won, Gate(own_engine, bench.settings))
    assert ledger.call(OPENAI, perform) == "answer"
    assert (perform.calls, cut.left) == (1, 0)
    assert bench.one("SELECT count(*) FROM model_calls").count == 1
    assert bench.one("SELECT spent_tokens FROM budgets").spent_tokens == 120, "it was paid once"
    assert Ledger(bench.engine, next_attempt(bench, won)).call(OPENAI, perform) == "answer"
    assert perform.calls == 1


def test_a_database_that_stays_away_is_not_waited_for_for_ever(
    bench: Bench, own_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.db.PATIENCE", 1.2)
    cut = Cut(own_engine, seen=False)
    cut.left = 1000
    with pytest.raises(OperationalError):
        commit_patiently(own_engine, lambda session, again: session.execute(text("SELECT 1")))
    assert 1000 - cut.left in (2, 3)


def test_threads_of_one_node_share_a_ledger(bench: Bench, won: Won) -> None:
    ledger = Ledger(bench.engine, won)
    specs = [CallSpec("relevance_grader", "openai", "gpt-4.1-mini", "v", {"n": n}) for n in range(6)]
    results = at_once([lambda s=s: ledger.call(s, Counted(s.request["n"])) for s in specs])
    assert results == list(range(6))
    assert ledger.usage().input_tokens == 600


# -- describe ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TransientError("busy\x00", code="rate_limit", where="openai"), "rate_limit: busy\ufffd"),
        (PermanentError("no", code="auth", where="openai"), "auth: no"),
        (ValueError("bad"), "ValueError: bad"),
        (KeyError("word"), "KeyError: 'word'"),
        (RuntimeError("postgresql://u:pw@h/d sk-0123456789"), "RuntimeError: postgresql://u:***@h/d [key]"),
    ],
)
def test_an_error_as_the_history_names_it(error: Exception, text: str) -> None:
    assert describe(error) == text


def test_a_long_error_is_cut() -> None:
    assert len(describe(ValueError("x" * 5000))) == 2000
