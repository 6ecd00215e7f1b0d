"""What must hold after a storm, asked in SQL and of the scripted servers' own books."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, text

from tests.chaos.storm import Blow
from tests.fakes.http_fake import Exchange

# Steps of a run that are missing, or whose branches do not each have exactly one row that counts.
_GAPS = """
WITH counting AS (
    SELECT run_id, step, branch FROM transitions
     WHERE batch_id = :batch AND status IN ('succeeded', 'failed', 'skipped')),
steps AS (
    SELECT run_id, step, count(*) AS rows, count(DISTINCT branch) AS branches, max(branch) + 1 AS width
      FROM counting GROUP BY run_id, step),
spans AS (
    SELECT run_id, count(*) AS steps, max(step) AS last FROM steps GROUP BY run_id)
SELECT run_id, step, 'branches' AS what FROM steps WHERE rows <> width OR branches <> width
UNION ALL
SELECT run_id, last, 'steps' FROM spans WHERE steps <> last
UNION ALL
SELECT runs.id, runs.step, 'run ends at another step' FROM runs LEFT JOIN spans ON spans.run_id = runs.id
 WHERE runs.batch_id = :batch AND runs.step IS DISTINCT FROM spans.last
UNION ALL
SELECT run_id, step, 'attempts' FROM transitions WHERE batch_id = :batch
 GROUP BY run_id, step, branch HAVING count(*) <> max(attempt) OR count(DISTINCT attempt) <> count(*)
"""
_ANSWERS = "SELECT question, status, answer, reason, sources, notes FROM runs WHERE batch_id = :batch"
_PAID_TWICE = """
SELECT run_id, step, branch, role, request_hash, count(*) FROM model_calls
 WHERE batch_id = :batch AND status = 'ok' AND response IS NOT NULL
 GROUP BY 1, 2, 3, 4, 5 HAVING count(*) > 1
"""


def rows(engine: Engine, query: str, **values: Any) -> list[tuple[Any, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query), values)]


def check_history(engine: Engine, batch: int, wanted: int) -> Counter[str]:
    """Every run has one disposition and a history without holes. Returns the dispositions."""
    ends = Counter(row[1] for row in rows(engine, _ANSWERS, batch=batch))
    assert sum(ends.values()) == wanted, ends
    assert ends.keys() <= {"answered", "gave_up"}, (ends, _errors(engine, batch))
    assert rows(engine, "SELECT * FROM lost_runs") == []
    assert rows(engine, "SELECT * FROM claims") == []
    assert rows(engine, _GAPS, batch=batch) == []
    assert rows(engine, _PAID_TWICE, batch=batch) == []
    return ends


def _errors(engine: Engine, batch: int) -> list[tuple[Any, ...]]:
    return rows(engine, "SELECT error FROM runs WHERE batch_id = :batch AND error IS NOT NULL", batch=batch)[
        :5
    ]


def differences(engine: Engine, calm: int, stormy: int) -> list[tuple[Any, ...]]:
    """Questions that did not come to the same in both batches, with what they came to and their notes."""
    left, right = (
        {row[0]: row[1:] for row in rows(engine, _ANSWERS, batch=batch)} for batch in (calm, stormy)
    )
    return [
        (question, left.get(question), right.get(question))
        for question in left.keys() | right.keys()
        if left.get(question) != right.get(question)
    ]


def taken_back(engine: Engine, batch: int, blows: Sequence[Blow]) -> tuple[int, float]:
    """Attempts that were lost with their worker, and the most seconds from its death until one was taken back."""
    lost = rows(
        engine,
        "SELECT extract(epoch FROM started_at), extract(epoch FROM ended_at) FROM transitions"
        " WHERE batch_id = :batch AND status = 'lost'",
        batch=batch,
    )
    waits = [
        float(ended) - max(at)
        for started, ended in lost
        if (at := [blow.at for blow in blows if blow.what == "worker" and started <= blow.at <= ended])
    ]
    return len(lost), max(waits, default=0.0)


def made_again(exchanges: Sequence[Exchange]) -> int:
    """Calls that a provider would bill a second time: good replies beyond the first to the same request."""
    return sum(count - 1 for count in Counter(one.key for one in exchanges if one.good).values())


def in_flight(exchanges: Sequence[Exchange], blows: Sequence[Blow], grace: float) -> int:
    """Good replies that a blow could keep from being stored; `grace`: seconds from a reply to its commit."""
    return sum(
        one.good
        and any(
            blow.what in ("worker", "postgres")
            and (one.open_at(blow.begun, grace) or blow.begun <= one.begun <= blow.ended)
            for blow in blows
        )
        for one in exchanges
    )
