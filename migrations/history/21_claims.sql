-- A piece of work that is open at this moment. Empty when nothing runs.
CREATE VIEW history.claims AS
SELECT runs.batch_id,                        -- the batch
       claims.run_id,                        -- the run
       claims.step,                          -- superstep
       claims.branch,                        -- branch of a fan-out
       claims.node,                          -- the node to be run
       claims.status,                        -- ready, running, done or failed
       claims.attempt,                       -- tries begun so far
       claims.earlier,                       -- of these, tries in earlier rounds of the run
       claims.lost,                          -- tries whose worker was lost
       claims.forgiven,                      -- tries that do not count, because the provider failed everybody
       claims.not_before,                    -- a pause: nobody takes it before then
       claims.worker,                        -- who works on it
       claims.started_at,                    -- since when
       claims.lease_until                    -- when the worker is taken for lost unless it renews its lease
  FROM public.claims
  JOIN public.runs ON runs.id = claims.run_id;
