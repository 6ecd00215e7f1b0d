"""`/metrics` for Prometheus.

What the nodes did is summed in `metric_sums`: each scrape adds the transitions that are new, found by the
id of their transaction, so that none is counted twice, left out, or read again. Questions are counted
again only where a batch is open or has changed; the view `lost_runs` reads much and is asked seldom.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from sqlalchemy import Engine, text

from api.readiness import queue_age
from shared import heartbeats
from shared.db import transaction
from shared.statuses import RunStatus

# upper bounds in seconds; a cosine takes milliseconds, a model that reasons a minute
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LOST_SECONDS = 60.0  # between two looks for lost runs, at least; and fifty times as long as a look takes
_SPARE = 50

# xids below the snapshot's xmin have all ended: nothing is ever added below it later
_SUM = """
WITH fresh AS (
    SELECT batches.pipeline, node, transitions.status AS outcome, coalesce(error_class, '') AS error_class,
           width_bucket(duration_ms / 1000, CAST(:buckets AS double precision[])) AS bucket,
           count(*) AS attempts, sum(duration_ms) / 1000 AS seconds,
           coalesce(sum(input_tokens), 0) AS input_tokens,
           coalesce(sum(output_tokens), 0) AS output_tokens, coalesce(sum(cost_usd), 0) AS cost_usd
      FROM transitions JOIN batches ON batches.id = transitions.batch_id
     WHERE recorded_in >= :since AND recorded_in < :until
     GROUP BY 1, 2, 3, 4, 5)
INSERT INTO metric_sums AS sums (pipeline, node, outcome, error_class, bucket, attempts, seconds,
                                 input_tokens, output_tokens, cost_usd)
SELECT * FROM fresh
ON CONFLICT (pipeline, node, outcome, error_class, bucket) DO UPDATE
   SET attempts = sums.attempts + excluded.attempts, seconds = sums.seconds + excluded.seconds,
       input_tokens = sums.input_tokens + excluded.input_tokens,
       output_tokens = sums.output_tokens + excluded.output_tokens,
       cost_usd = sums.cost_usd + excluded.cost_usd
"""
_EDGE = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
_SUMS = "SELECT * FROM metric_sums ORDER BY pipeline, node, outcome, error_class, bucket"
_COUNTS = "SELECT batch_id, status, count(*) FROM runs WHERE batch_id = ANY (:ids) GROUP BY 1, 2"
_CLAIMS = "SELECT status, count(*) FROM claims GROUP BY status"


def add_new(engine: Engine) -> None:
    """Bring `metric_sums` up to date. Two at once take turns."""
    with transaction(engine) as session:
        since = session.scalar(text("SELECT summed_to FROM metric_state WHERE id = 1 FOR UPDATE"))
        until = session.scalar(text(_EDGE))
        assert since is not None, "the migration wrote the row"
        assert until is not None
        # beyond the edge: a copy of the database in a new server, whose ids begin anew
        if since <= until:
            session.execute(text(_SUM), {"since": since, "until": until, "buckets": list(BUCKETS)})
        session.execute(text("UPDATE metric_state SET summed_to = :until WHERE id = 1"), {"until": until})


class Metrics:
    """What one process remembers between scrapes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: dict[int, tuple[datetime | None, str, Counter[str]]] = {}
        self._lost = 0
        self._look_again = 0.0

    def exposition(self, engine: Engine) -> bytes:
        """The metrics in Prometheus's text format."""
        with self._lock:
            found = [*self._of_nodes(engine), *self._of_questions(engine), *self._of_parts(engine)]
        registry = CollectorRegistry()
        registry.register(_Found(found))
        return generate_latest(registry)

    def _of_nodes(self, engine: Engine) -> Iterator[Metric]:
        add_new(engine)
        with transaction(engine) as session:
            rows = session.execute(text(_SUMS)).all()
        yield _latencies(rows)
        attempts: Counter[tuple[str, ...]] = Counter()
        tokens: Counter[tuple[str, ...]] = Counter()
        cost: dict[tuple[str, ...], float] = defaultdict(float)
        limited: Counter[tuple[str, ...]] = Counter()
        for row in rows:
            attempts[row.pipeline, row.node, row.outcome] += row.attempts
            tokens[row.pipeline, row.node, "input"] += int(row.input_tokens)
            tokens[row.pipeline, row.node, "output"] += int(row.output_tokens)
            cost[row.pipeline, row.node] += float(row.cost_usd)
            if row.error_class == "rate_limited":
                limited[row.pipeline, row.node] += row.attempts
        place = ["pipeline", "node"]
        yield _counter("cragline_node_attempts", "Attempts of nodes.", [*place, "status"], attempts)
        yield _counter("cragline_tokens", "Tokens of model calls.", [*place, "direction"], tokens)
        yield _counter("cragline_cost_usd", "Cost of calls with a known price, in USD.", place, cost)
        yield _counter("cragline_rate_limited", "Attempts that ended in a 429.", place, limited)

    def _of_questions(self, engine: Engine) -> Iterator[Metric]:
        with transaction(engine) as session:
            rows = session.execute(text("SELECT id, pipeline, ended_at FROM batches")).all()
            now = {row.id: row for row in rows}
            changed = [
                row.id
                for row in rows
                if row.ended_at is None or self._batches.get(row.id, (None,))[0] != row.ended_at
            ]
            counts: dict[int, Counter[str]] = {number: Counter() for number in changed}
            for number, status, count in session.execute(text(_COUNTS), {"ids": changed}):
                counts[number][status] = count
        self._batches = {
            number: (row.ended_at, row.pipeline, counts[number])
            if number in counts
            else self._batches[number]
            for number, row in now.items()
        }
        family = GaugeMetricFamily(
            "cragline_questions", "Distinct questions by status.", labels=["pipeline", "status"]
        )
        total: Counter[tuple[str, str]] = Counter()
        for _, pipeline, by_status in self._batches.values():
            for status in RunStatus:
                total[pipeline, status.value] += by_status[status.value]
        for labels, count in sorted(total.items()):
            family.add_metric(list(labels), count)
        yield family

    def _of_parts(self, engine: Engine) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "cragline_queue_age_seconds",
            "For how long questions have waited without one being admitted.",
            value=queue_age(engine),
        )
        claims = GaugeMetricFamily("cragline_claims", "Steps in flight, by status.", labels=["status"])
        with transaction(engine) as session:
            for status, count in session.execute(text(_CLAIMS)):
                claims.add_metric([status], count)
        yield claims
        yield GaugeMetricFamily(
            "cragline_stuck_runs", "Runs of the view lost_runs; must be 0.", value=self._stuck(engine)
        )
        alive = GaugeMetricFamily(
            "cragline_heartbeat_age_seconds", "Since a part was last heard of.", labels=["part"]
        )
        for name, age in sorted(heartbeats.ages(engine).items()):
            alive.add_metric([name], age)
        yield alive

    def _stuck(self, engine: Engine) -> int:
        begun = time.monotonic()
        if begun >= self._look_again:
            with transaction(engine) as session:
                self._lost = session.scalar(text("SELECT count(*) FROM lost_runs")) or 0
            took = time.monotonic() - begun
            self._look_again = begun + max(LOST_SECONDS, took * _SPARE)
        return self._lost


class _Found:
    """A collector of what was found."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _counter(name: str, what: str, labels: list[str], values: Any) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(list(key), value)
    return family


def _latencies(rows: Any) -> Metric:
    """Attempts that were made, whatever came of them; a skipped one took no time."""
    family = HistogramMetricFamily(
        "cragline_node_duration_seconds", "Duration of a node's attempts.", labels=["pipeline", "node"]
    )
    buckets: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        if row.outcome != "skipped":
            buckets[row.pipeline, row.node][row.bucket] += row.attempts
            seconds[row.pipeline, row.node] += row.seconds
    for key, counted in sorted(buckets.items()):
        total, cumulated = 0, []
        for place, bound in enumerate([*map(str, BUCKETS), "+Inf"]):
            total += counted[place]
            cumulated.append((bound, float(total)))
        family.add_metric(list(key), cumulated, seconds[key])
    return family
