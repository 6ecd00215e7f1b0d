-- How fast each worker ran each node, beside all workers of the batch: slowness 2 means twice as long as usual.
CREATE VIEW history.worker_stats AS
WITH attempts AS NOT MATERIALIZED (
    SELECT * FROM public.transitions WHERE status <> 'skipped' AND worker IS NOT NULL),
usual AS (
    SELECT batch_id, node, percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms) AS p50_ms
      FROM attempts WHERE status = 'succeeded'
     GROUP BY batch_id, node),
own AS (
    SELECT batch_id, worker, node, count(*) AS attempts,
           count(*) FILTER (WHERE status IN ('retried', 'failed')) AS failed,
           count(*) FILTER (WHERE status = 'lost') AS lost,
           percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms) FILTER (WHERE status = 'succeeded') AS p50_ms,
           percentile_cont(0.95) WITHIN GROUP (ORDER BY duration_ms) FILTER (WHERE status = 'succeeded') AS p95_ms
      FROM attempts
     GROUP BY batch_id, worker, node)
SELECT own.batch_id,                         -- the batch
       own.worker,                           -- the worker
       own.node,                             -- the node
       own.attempts,                         -- attempts, whatever became of them
       own.failed,                           -- attempts that failed, followed by another or not
       own.lost,                             -- attempts after which the worker was not heard of
       round(own.p50_ms::numeric, 1) AS p50_ms,        -- median duration of those that succeeded, in milliseconds
       round(own.p95_ms::numeric, 1) AS p95_ms,        -- the duration that 95 of 100 do not exceed
       round(usual.p50_ms::numeric, 1) AS usual_ms,    -- the median over all workers of the batch
       round((own.p50_ms / nullif(usual.p50_ms, 0))::numeric, 2) AS slowness  -- p50_ms / usual_ms
  FROM own
  LEFT JOIN usual ON usual.batch_id = own.batch_id AND usual.node = own.node;
