CREATE VIEW run_timeline AS
SELECT transitions.batch_id,
       transitions.run_id,
       transitions.step,
       transitions.branch,
       transitions.attempt,
       batches.pipeline,
       transitions.node,
       transitions.status,
       transitions.came_from,
       transitions.goes_to,
       transitions.started_at,
       transitions.ended_at,
       transitions.duration_ms,
       transitions.started_at - runs.admitted_at AS since_admitted,
       grades.label AS grade,
       grades.score AS grade_score,
       grades.source AS graded_source,
       transitions.input_tokens,
       transitions.output_tokens,
       transitions.cost_usd,
       transitions.worker,
       transitions.task_id,
       transitions.error_class,
       transitions.error,
       transitions.state_update
  FROM transitions
  JOIN runs ON runs.id = transitions.run_id
  JOIN batches ON batches.id = transitions.batch_id
  LEFT JOIN grades ON grades.run_id = transitions.run_id
                  AND grades.step = transitions.step
                  AND grades.branch = transitions.branch
                  AND transitions.status = 'succeeded';

COMMENT ON VIEW run_timeline IS
'One row an attempt of a node. Filter and order: WHERE run_id = ... ORDER BY step, branch, attempt';
