"""A batch of 100,000 questions: what its pages read is bounded, and by an index."""

import re
from typing import Any

import pytest
from sqlalchemy import Engine, text

from shared import browse
from shared.db import transaction
from shared.history import Wanted
from tests.integration.api.web.data import add_batch

QUESTIONS = 100_000


@pytest.fixture(scope="module")
def large(engine: Engine) -> int:
    batch, _ = add_batch(engine, ["Question 1?"], name="large")
    fill = [
        "INSERT INTO runs (id, batch_id, first_row, question, status, answer, reason, admitted_at, ended_at, step)"
        " SELECT nextval('runs_id_seq'), :b, n, 'Question ' || n || '?',"
        " CASE WHEN n % 1000 = 0 THEN 'gave_up' ELSE 'answered' END,"
        " CASE WHEN n % 1000 <> 0 THEN 'The answer to ' || n END, CASE WHEN n % 1000 = 0 THEN 'no' END,"
        " now(), now(), 1 FROM generate_series(2, :n) AS n",
        "INSERT INTO transitions (month, run_id, batch_id, step, branch, attempt, node, status, came_from,"
        " goes_to, started_at, ended_at, duration_ms)"
        " SELECT batches.month, runs.id, :b, 1, 0, 1, 'retrieve', 'succeeded', '{__start__}', '{__end__}',"
        " now(), now(), first_row % 100 FROM runs JOIN batches ON batches.id = :b WHERE batch_id = :b",
        "UPDATE batches SET run_count = :n, row_count = :n WHERE id = :b",
    ]
    with transaction(engine) as session:
        for statement in fill:
            session.execute(
                text(statement), {"b": batch, "n": QUESTIONS} if ":n" in statement else {"b": batch}
            )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE runs"))
        connection.execute(text("ANALYZE transitions"))
    return batch


def most_rows(engine: Engine, query: str, **values: Any) -> tuple[int, str]:
    """The most rows that one part of the plan has touched, those it threw away too; and the plan."""
    with transaction(engine) as session:
        plan = "\n".join(session.scalars(text("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + query), values))
    touched = re.findall(r"(?:actual rows=|Rows Removed by Filter: )(\d+)", plan)
    return max(map(int, touched)), plan


def test_a_page_reads_as_many_rows_as_it_shows(engine: Engine, large: int) -> None:
    values = {"batch": large, "after": 70_000, "status": None, "shown": 300, "limit": 51}
    touched, plan = most_rows(engine, browse._PAGE, **values)
    assert touched <= 51, plan
    assert "Seq Scan" not in plan
    assert "Sort" not in plan


@pytest.mark.parametrize("status", ["gave_up", "answered"])
def test_a_page_of_one_outcome_reads_a_part_only(engine: Engine, large: int, status: str) -> None:
    page = browse.questions(engine, large, after=50_000, status=status, limit=20)
    assert len(page.rows) == 20
    assert {row["status"] for row in page.rows} == {status}
    values = {"batch": large, "after": 50_000, "status": status, "shown": 300, "limit": 21}
    touched, plan = most_rows(engine, browse._PAGE, **values)
    assert "Seq Scan" not in plan, plan
    assert touched <= 21_000, plan  # of the rare one there is one in a thousand


def test_a_search_goes_through_a_part_at_a_time(engine: Engine, large: int) -> None:
    first = browse.questions(engine, large, words="answer to 99999")
    assert (first.rows, first.next) == ([], browse.SEARCHED)
    second = browse.questions(engine, large, words="answer to 99999", after=first.next)
    assert [row["first_row"] for row in second.rows] == [99_999]
    values = {"batch": large, "after": 0, "status": None, "words": "nowhere", "shown": 300, "limit": 51}
    touched, plan = most_rows(engine, browse._SEARCH, **values, searched=browse.SEARCHED)
    assert touched <= browse.SEARCHED, plan


def test_latencies_are_measured_on_a_sample(engine: Engine, large: int) -> None:
    (latency,), every = browse.node_latencies(engine, large)
    assert every == 5
    assert latency.attempts == QUESTIONS / 5
    assert sum(latency.bars) == latency.attempts


def test_the_list_counts_nothing(engine: Engine, large: int) -> None:
    (head,) = browse.batch_heads(engine, Wanted(name="large"), 5)
    assert (head["batch_id"], head["submitted"]) == (large, QUESTIONS)
    _, plan = most_rows(engine, browse._HEADS, ids=[large])
    assert "runs" not in plan
    assert "Aggregate" not in plan


def test_neighbours_are_found_by_the_index(engine: Engine, large: int) -> None:
    page = browse.questions(engine, large, after=49_999, limit=3)
    before, here, after = (row["run_id"] for row in page.rows)
    assert browse.neighbours(engine, large, 50_001) == (before, after)
    assert here not in (before, after)
