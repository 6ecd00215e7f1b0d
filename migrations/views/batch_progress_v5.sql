CREATE VIEW batch_progress AS
SELECT batches.id AS batch_id,
       batches.name,
       batches.pipeline,
       batches.collection,
       batches.status,
       batches.row_count AS rows,
       coalesce(blank.rows, 0) AS empty_rows,
       batches.row_count - coalesce(blank.rows, 0) - batches.run_count AS duplicate_rows,
       batches.run_count AS submitted,
       counts.pending,
       counts.running,
       counts.answered,
       counts.gave_up,
       counts.failed,
       counts.cancelled,
       coalesce(calls.cost_usd, 0) + coalesce(searches.cost_usd, 0) AS cost_usd,
       coalesce(calls.saved_usd, 0) + coalesce(searches.saved_usd, 0)
           + coalesce(retrieved.saved_usd, 0) + coalesce(counts.saved_usd, 0) AS saved_usd,
       round(pace.per_minute::numeric, 2) AS rate_per_minute,
       CASE WHEN batches.status = 'open' AND counts.pending + counts.running > 0 AND pace.per_minute > 0
            THEN round(((counts.pending + counts.running) / pace.per_minute * 60)::numeric) END AS eta_seconds,
       batches.submitted_at,
       batches.ended_at,
       batches.submitted_by,
       CASE WHEN batches.status = 'paused' THEN batches.pause_reason END AS pause_reason,
       batches.priority,
       batches.weight,
       batches.max_in_flight,
       calls.tokens,
       batches.max_cost_usd,
       batches.max_cost_usd - budgets.spent_usd AS usd_left,
       batches.max_tokens,
       batches.max_tokens - budgets.spent_tokens AS tokens_left
  FROM batches
  LEFT JOIN budgets ON budgets.batch_id = batches.id
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE runs.status = 'pending') AS pending,
              count(*) FILTER (WHERE runs.status = 'running') AS running,
              count(*) FILTER (WHERE runs.status = 'answered') AS answered,
              count(*) FILTER (WHERE runs.status = 'gave_up') AS gave_up,
              count(*) FILTER (WHERE runs.status = 'failed') AS failed,
              count(*) FILTER (WHERE runs.status = 'cancelled') AS cancelled,
              count(*) FILTER (WHERE runs.status IN ('answered', 'gave_up', 'failed')) AS ended,
              sum(runs.saved_usd) AS saved_usd,
              count(*) FILTER (WHERE runs.status <> 'cancelled' AND runs.ended_at > now() - interval '60 seconds') AS ended_lately,
              min(runs.admitted_at) AS first_admitted,
              max(runs.ended_at) FILTER (WHERE runs.status <> 'cancelled') AS last_ended
         FROM runs WHERE runs.batch_id = batches.id) AS counts
 CROSS JOIN LATERAL (
       -- while it runs: what the last minute brought; afterwards: the mean of the whole batch
       SELECT CASE WHEN counts.pending + counts.running > 0 AND now() - counts.first_admitted > interval '60 seconds'
                   THEN counts.ended_lately::double precision
                   WHEN counts.pending + counts.running > 0
                   THEN counts.ended * 60 / greatest(extract(epoch FROM now() - counts.first_admitted), 1)::double precision
                   ELSE counts.ended * 60
                        / greatest(extract(epoch FROM counts.last_ended - counts.first_admitted), 1)::double precision
              END AS per_minute) AS pace
  LEFT JOIN LATERAL (
       SELECT count(*) AS rows FROM batch_rows
        WHERE batch_rows.batch_id = batches.id AND batch_rows.run_id IS NULL) AS blank ON true
  LEFT JOIN LATERAL (
       SELECT sum(model_calls.cost_usd) AS cost_usd,
              sum(model_calls.saved_usd) AS saved_usd,
              coalesce(sum(coalesce(model_calls.input_tokens, 0) + coalesce(model_calls.output_tokens, 0)), 0) AS tokens
         FROM model_calls
        WHERE model_calls.batch_id = batches.id) AS calls ON true
  LEFT JOIN LATERAL (
       SELECT sum(web_searches.cost_usd) AS cost_usd, sum(web_searches.saved_usd) AS saved_usd FROM web_searches
        WHERE web_searches.batch_id = batches.id) AS searches ON true
  LEFT JOIN LATERAL (
       SELECT sum(retrievals.saved_usd) AS saved_usd FROM retrievals
        WHERE retrievals.batch_id = batches.id) AS retrieved ON true;

COMMENT ON VIEW batch_progress IS
'One row a batch. submitted = pending + running + answered + gave_up + failed + cancelled, counted in distinct questions; rows = submitted + duplicate_rows + empty_rows. A paused batch has a pause_reason and no eta. usd_left and tokens_left are of the caps, and NULL where there is none; a negative one is what calls under way took beyond their estimates. saved_usd is what the work that was taken over had cost. rate_per_minute is of questions that came to an end of their own; cancelled ones do not count. Filter: WHERE batch_id = ...';
