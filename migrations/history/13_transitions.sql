-- One attempt of one node: append-only, and never changed. Add month = the batch's month to read one partition only.
CREATE VIEW history.transitions AS
SELECT batch_id,                             -- the batch
       run_id,                               -- the run
       step,                                 -- superstep, from 1
       branch,                               -- place in a fan-out, from 0; 0 where there is none
       attempt,                              -- the nth try of this run, step and branch
       node,                                 -- the node of the graph
       status,                               -- succeeded, retried, failed, lost, skipped or cancelled
       came_from,                            -- nodes of the step before
       goes_to,                              -- nodes that follow; empty where the attempt did not succeed
       state_update,                         -- JSON object: what the node changed in the run's state
       started_at,                           -- when the attempt began
       ended_at,                             -- when it was over
       duration_ms,                          -- how long it took, in milliseconds
       worker,                               -- the worker that ran it
       task_id,                              -- Celery's id of the task, as Flower shows it
       input_tokens,                         -- tokens sent to models; NULL where no model told
       output_tokens,                        -- tokens that came back; NULL where no model told
       cost_usd,                             -- cost of its calls in US dollars; NULL where no call has a known price
       error_class,                          -- kind of error, where it did not succeed
       error,                                -- the error in words
       round,                                -- the run's round at the time
       month                                 -- partition: first day of the month in which the batch was submitted
  FROM public.transitions;
