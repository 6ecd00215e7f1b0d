-- Must be empty at any time: each row is a run that nobody will end, and why.
CREATE VIEW history.lost_runs AS
SELECT batch_id,                             -- the batch
       run_id,                               -- the run; NULL where the count of the batch is wrong
       what                                  -- what is wrong with it
  FROM public.lost_runs;
