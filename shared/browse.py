"""Looking around in batches of any size: every query here reads a bounded number of rows, by an index.

What counts whole batches is `batch_progress`, by way of `shared.history.progress`.
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from shared.db import read_rows
from shared.history import Wanted, find_ids

SEARCHED = 50_000  # questions that one page of a search looks through
SHOWN = 300  # characters of a text in a list
SAMPLE = 20_000  # questions whose nodes are measured
# Upper ends of the bars, in milliseconds; what is above the last one is in a bar of its own.
BUCKETS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


_HEADS = """
SELECT id AS batch_id, name, pipeline, collection, status, owner, row_count AS rows, run_count AS submitted,
       submitted_at, ended_at, pause_reason
  FROM batches WHERE id = ANY (:ids) ORDER BY id DESC
"""


def batch_heads(engine: Engine, wanted: Wanted, limit: int) -> list[dict[str, Any]]:
    """Batches, newest first, with what is known of them without counting anything."""
    return read_rows(engine, _HEADS, ids=find_ids(engine, wanted, limit))


def batch_head(engine: Engine, batch_id: int) -> dict[str, Any] | None:
    """One of `batch_heads`; None: there is no such batch."""
    found = read_rows(engine, _HEADS, ids=[batch_id])
    return found[0] if found else None


@dataclass(frozen=True)
class Questions:
    """A page of a batch's questions. `next`: what `after` is for the page that follows; None: the end."""

    rows: list[dict[str, Any]]
    next: int | None


_PAGE = """
SELECT id AS run_id, first_row, left(question, :shown) AS question, status, left(answer, :shown) AS answer,
       left(coalesce(error, reason), :shown) AS said, web_used
  FROM runs
 WHERE batch_id = :batch AND first_row > :after AND (CAST(:status AS text) IS NULL OR status = :status)
 ORDER BY first_row LIMIT :limit
"""
# The words are looked for in the whole texts, but in no more than so many rows.
_SEARCH = """
WITH looked AS MATERIALIZED (
       SELECT id, first_row, question, answer, status, error, reason, web_used FROM runs
        WHERE batch_id = :batch AND first_row > :after
          AND (CAST(:status AS text) IS NULL OR status = :status)
        ORDER BY first_row LIMIT :searched)
SELECT id AS run_id, first_row, left(question, :shown) AS question, status, left(answer, :shown) AS answer,
       left(coalesce(error, reason), :shown) AS said, web_used
  FROM looked
 WHERE position(lower(:words) IN lower(question)) > 0
    OR position(lower(:words) IN lower(coalesce(answer, ''))) > 0
 ORDER BY first_row LIMIT :limit
"""
_LAST_LOOKED = """
SELECT first_row FROM runs
 WHERE batch_id = :batch AND first_row > :after AND (CAST(:status AS text) IS NULL OR status = :status)
 ORDER BY first_row OFFSET :searched - 1 LIMIT 1
"""


def questions(
    engine: Engine,
    batch_id: int,
    *,
    after: int = 0,
    status: str | None = None,
    words: str = "",
    limit: int = 50,
) -> Questions:
    """Questions in the order of the file, behind row `after`; with `words` in question or answer, in upper or
    lower case. A search may bring a page that is not full, or empty, and still has a next one."""
    values: dict[str, Any] = {"batch": batch_id, "after": after, "status": status}
    shown: dict[str, Any] = {"shown": SHOWN, "limit": limit + 1}
    if not words:
        found = read_rows(engine, _PAGE, **values, **shown)
    else:
        found = read_rows(engine, _SEARCH, **values, **shown, words=words, searched=SEARCHED)
    if len(found) > limit:
        return Questions(found[:limit], found[limit - 1]["first_row"])
    if not words:
        return Questions(found, None)
    last = read_rows(engine, _LAST_LOOKED, **values, searched=SEARCHED)
    return Questions(found, last[0]["first_row"] if last else None)


_RUN_GRADES = """
SELECT step, branch, document_id, label, score, model, prompt_version, detail FROM grades
 WHERE run_id = :run ORDER BY step, branch
"""
_RUN_SEARCHES = """
SELECT step, attempt, provider, query, status, results, error, cost_usd, duration_ms FROM web_searches
 WHERE run_id = :run ORDER BY id
"""


def run_grades(engine: Engine, run_id: int) -> list[dict[str, Any]]:
    """The verdicts on a run's documents."""
    return read_rows(engine, _RUN_GRADES, run=run_id)


def run_searches(engine: Engine, run_id: int) -> list[dict[str, Any]]:
    """The web searches of a run, with what each brought."""
    return read_rows(engine, _RUN_SEARCHES, run=run_id)


def neighbours(engine: Engine, batch_id: int, first_row: int) -> tuple[int | None, int | None]:
    """The runs before and after the one of `first_row`, in the order of the file."""
    query = """
    SELECT (SELECT id FROM runs WHERE batch_id = :batch AND first_row < :row ORDER BY first_row DESC LIMIT 1) AS a,
           (SELECT id FROM runs WHERE batch_id = :batch AND first_row > :row ORDER BY first_row LIMIT 1) AS b
    """
    (found,) = read_rows(engine, query, batch=batch_id, row=first_row)
    return found["a"], found["b"]


@dataclass(frozen=True)
class NodeLatency:
    """How long the attempts of a node took. `bars`: attempts by bucket, one more than `BUCKETS_MS` has."""

    node: str
    attempts: int
    p50_ms: float
    p95_ms: float
    longest_ms: float
    bars: list[int]


# `every`: of so many questions one is measured. The month is given so that one partition is read.
_LATENCIES = """
WITH measured AS MATERIALIZED (
       SELECT transitions.node, transitions.duration_ms
         FROM runs JOIN transitions ON transitions.run_id = runs.id
        WHERE runs.batch_id = :batch AND runs.first_row % :every = 0 AND transitions.month = :month
          AND transitions.status <> 'skipped')
SELECT node, count(*) AS attempts, max(duration_ms) AS longest_ms,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms) AS p50_ms,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY duration_ms) AS p95_ms,
       array_agg(duration_ms) AS durations
  FROM measured GROUP BY node ORDER BY sum(duration_ms) DESC, node
"""


def node_latencies(engine: Engine, batch_id: int) -> tuple[list[NodeLatency], int]:
    """The nodes of a batch, those that took most time first; and of how many questions one was measured."""
    found = read_rows(engine, "SELECT run_count, month FROM batches WHERE id = :batch", batch=batch_id)
    if not found:
        return [], 1
    every = -(-int(found[0]["run_count"]) // SAMPLE) or 1
    rows = read_rows(engine, _LATENCIES, batch=batch_id, month=found[0]["month"], every=every)
    return [_latency(row) for row in rows], every


def _latency(row: dict[str, Any]) -> NodeLatency:
    bars = [0] * (len(BUCKETS_MS) + 1)
    for duration in row["durations"]:
        bars[bisect_left(BUCKETS_MS, duration)] += 1
    return NodeLatency(row["node"], row["attempts"], row["p50_ms"], row["p95_ms"], row["longest_ms"], bars)
