"""What earlier batches of the same pipeline and models came to for a question: calls, tokens, cost, pace."""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text

from shared.db import transaction
from shared.plan import Plan

BATCHES = 5  # the newest
SAMPLE = 500  # runs looked at in each
FEWEST = 10  # ended runs, below which a batch says nothing

_MEASURED = """
SELECT batches.id AS batch_id, pace.runs, pace.per_minute, counts.*
  FROM batches
 CROSS JOIN LATERAL (
       SELECT count(*) AS runs,
              count(*) * 60 / greatest(extract(epoch FROM max(ended_at) - min(admitted_at)), 1) AS per_minute
         FROM runs WHERE batch_id = batches.id AND status IN ('answered', 'gave_up')) AS pace
 CROSS JOIN LATERAL (
       SELECT count(*) AS sampled,
              sum(of_run.calls) AS calls, sum(of_run.input_tokens) AS input_tokens,
              sum(of_run.output_tokens) AS output_tokens, sum(of_run.cost_usd + of_run.search_cost_usd) AS cost_usd,
              sum(of_run.searches) AS searches, sum(of_run.unpriced) AS unpriced
         FROM (SELECT id FROM runs
                WHERE batch_id = batches.id AND status IN ('answered', 'gave_up') ORDER BY first_row LIMIT :sample
              ) AS sample
        CROSS JOIN LATERAL (
              SELECT count(*) AS calls,
                     coalesce(sum(input_tokens), 0) AS input_tokens,
                     coalesce(sum(output_tokens), 0) AS output_tokens,
                     coalesce(sum(cost_usd), 0) AS cost_usd,
                     count(*) FILTER (WHERE cost_usd IS NULL AND status = 'ok') AS unpriced,
                     (SELECT count(*) FROM web_searches WHERE run_id = sample.id) AS searches,
                     (SELECT coalesce(sum(cost_usd), 0) FROM web_searches WHERE run_id = sample.id) AS search_cost_usd
                FROM model_calls WHERE run_id = sample.id) AS of_run) AS counts
 WHERE batches.id IN (SELECT id FROM batches
                       WHERE pipeline = :pipeline AND plan ->> 'provider' = :provider
                         AND plan -> 'models' = CAST(:models AS jsonb)
                         AND coalesce(plan -> 'params' ->> 'k', '') = :k
                       ORDER BY id DESC LIMIT :batches)
   AND pace.runs >= :fewest
 ORDER BY batches.id
"""


@dataclass(frozen=True)
class Measured:
    """Averages of one batch for a question. `cost_usd` is None where a call had no known price."""

    batch_id: int
    runs: int
    per_minute: float
    calls: float
    searches: float
    input_tokens: float
    output_tokens: float
    cost_usd: float | None


def measured(engine: Engine, plan: Plan) -> list[Measured]:
    """The newest batches with the same pipeline, models and number of documents; oldest first."""
    values = {
        "pipeline": plan.pipeline,
        "provider": plan.provider,
        "models": json.dumps(plan.models),
        "k": str(plan.params.get("k", "")),
        "batches": BATCHES,
        "sample": SAMPLE,
        "fewest": FEWEST,
    }
    with transaction(engine) as session:
        return [_averages(row) for row in session.execute(text(_MEASURED), values).all()]


def _averages(row: Any) -> Measured:
    def mean(total: Any) -> float:
        return float(total or 0) / int(row.sampled)

    return Measured(
        batch_id=row.batch_id,
        runs=row.runs,
        per_minute=float(row.per_minute),
        calls=mean(row.calls),
        searches=mean(row.searches),
        input_tokens=mean(row.input_tokens),
        output_tokens=mean(row.output_tokens),
        cost_usd=None if row.unpriced else mean(row.cost_usd),
    )
