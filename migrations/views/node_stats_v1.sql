CREATE VIEW node_stats AS
SELECT transitions.batch_id,
       batches.pipeline,
       transitions.node,
       count(*) FILTER (WHERE transitions.status <> 'skipped') AS attempts,
       count(*) FILTER (WHERE transitions.status = 'succeeded') AS succeeded,
       count(*) FILTER (WHERE transitions.status = 'retried') AS retried,
       count(*) FILTER (WHERE transitions.status = 'failed') AS failed,
       count(*) FILTER (WHERE transitions.status = 'lost') AS lost,
       count(*) FILTER (WHERE transitions.status = 'skipped') AS skipped,
       round((percentile_cont(0.5) WITHIN GROUP (ORDER BY transitions.duration_ms) FILTER (WHERE transitions.status <> 'skipped'))::numeric, 1) AS p50_ms,
       round((percentile_cont(0.95) WITHIN GROUP (ORDER BY transitions.duration_ms) FILTER (WHERE transitions.status <> 'skipped'))::numeric, 1) AS p95_ms,
       sum(transitions.input_tokens) AS input_tokens,
       sum(transitions.output_tokens) AS output_tokens,
       sum(transitions.cost_usd) AS cost_usd
  FROM transitions
  JOIN batches ON batches.id = transitions.batch_id
 GROUP BY transitions.batch_id, batches.pipeline, transitions.node;

COMMENT ON VIEW node_stats IS
'How each node did in each batch: attempts by outcome (skipped branches were no attempts), latency in milliseconds, tokens, cost. Filter: WHERE batch_id = ...';
