CREATE VIEW lost_runs AS
SELECT runs.batch_id, runs.id AS run_id, 'running, but nothing is left to do for it' AS what
  FROM runs
 WHERE runs.status = 'running' AND NOT EXISTS (SELECT FROM claims WHERE claims.run_id = runs.id)
UNION ALL
SELECT runs.batch_id, runs.id, 'open, but its batch is over'
  FROM runs JOIN batches ON batches.id = runs.batch_id
 WHERE runs.status IN ('pending', 'running') AND batches.status NOT IN ('open', 'paused')
UNION ALL
SELECT batch_rows.batch_id, batch_rows.run_id, 'a row of the file points to a run that is not there'
  FROM batch_rows
 WHERE batch_rows.run_id IS NOT NULL AND NOT EXISTS (SELECT FROM runs WHERE runs.id = batch_rows.run_id)
UNION ALL
SELECT batches.id, NULL, 'submitted ' || batches.run_count || ' runs, but there are ' || counts.runs
  FROM batches
 CROSS JOIN LATERAL (SELECT count(*) AS runs FROM runs WHERE runs.batch_id = batches.id) AS counts
 WHERE counts.runs <> batches.run_count;

COMMENT ON VIEW lost_runs IS
'Must be empty at any time: each row is a run for which submitted = ended + open does not hold, and why.';
