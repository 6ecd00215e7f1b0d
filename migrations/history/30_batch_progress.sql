-- How far each batch is. submitted = pending + running + answered + gave_up + failed + cancelled, in distinct questions; rows = submitted + duplicate_rows + empty_rows.
CREATE VIEW history.batch_progress AS
SELECT batch_id,                             -- the batch
       name,                                 -- the file's name, or the one given with --name
       pipeline,                             -- the pipeline
       collection,                           -- the collection
       status,                               -- open, paused, ended or cancelled; more in docs/history.md
       rows,                                 -- rows of the file
       empty_rows,                           -- rows without a question
       duplicate_rows,                       -- rows whose question another row asked before
       submitted,                            -- distinct questions
       pending,                              -- not yet taken up
       running,                              -- being worked on
       answered,                             -- answered with sources
       gave_up,                              -- ended without an answer, with a reason
       failed,                               -- something broke, named in the run's error
       cancelled,                            -- stopped by a person
       cost_usd,                             -- cost of all its calls in US dollars
       tokens,                               -- tokens sent to models and back
       usd_left,                             -- what is left of its cap on cost; NULL: no cap
       tokens_left,                          -- what is left of its cap on tokens; NULL: no cap
       saved_usd,                            -- what results taken over from elsewhere would have cost
       pause_reason,                         -- why it is paused; NULL: it is not
       rate_per_minute,                      -- questions ended a minute: lately while it runs, on average afterwards
       eta_seconds,                          -- estimated seconds until its end; NULL when it has ended
       submitted_at,                         -- when it was submitted
       ended_at                              -- when it ended
  FROM public.batch_progress;
