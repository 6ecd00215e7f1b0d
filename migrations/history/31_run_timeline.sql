-- The story of a run: WHERE run_id = ... ORDER BY step, branch, attempt.
CREATE VIEW history.run_timeline AS
SELECT batch_id,                             -- the batch
       run_id,                               -- the run
       step,                                 -- superstep
       branch,                               -- branch of a fan-out
       attempt,                              -- the nth try
       pipeline,                             -- the pipeline
       node,                                 -- the node
       status,                               -- succeeded, retried, failed, lost, skipped or cancelled
       came_from,                            -- nodes of the step before
       goes_to,                              -- nodes that follow
       started_at,                           -- when the attempt began
       ended_at,                             -- when it was over
       duration_ms,                          -- milliseconds
       since_admitted,                       -- time from the run's admission to the beginning of this attempt
       grade,                                -- label that this step gave to its document
       grade_score,                          -- the grader's score
       graded_source,                        -- the document that was graded
       input_tokens,                         -- tokens sent
       output_tokens,                        -- tokens that came back
       cost_usd,                             -- cost in US dollars
       worker,                               -- the worker
       task_id,                              -- Celery's id of the task
       error_class,                          -- kind of error
       error,                                -- the error in words
       state_update                          -- JSON object: what the node changed in the run's state
  FROM public.run_timeline;
