-- A distinct question of a batch, with its answer or the reason why there is none.
CREATE VIEW history.runs AS
SELECT id AS run_id,                         -- the run's number
       batch_id,                             -- the batch
       first_row,                            -- the first row of the file that asks this question
       question,                             -- the question
       status,                               -- pending, running, or the disposition: answered, gave_up, failed, cancelled
       step AS steps,                        -- supersteps so far
       answer,                               -- the answer, where it was answered
       reason,                               -- why it gave up, where it did
       error,                                -- what failed, as `node: code: message`, where it failed
       sources,                              -- JSON list of {title, source, page, origin, document_id} in the order cited
       web_used,                             -- whether the answer was made from web results too
       notes,                                -- labelled degradations, as `label: explanation`
       round,                                -- 1, and one more for each retry of the run
       first_step,                           -- the superstep with which its present course began
       forked_from,                          -- the run whose course it goes on from; NULL: it is no fork
       reused_from,                          -- the run whose answer was taken over; NULL: it was worked out
       saved_usd,                            -- what that run had cost, and this one therefore did not
       admitted_at,                          -- when the dispatcher took it up
       ended_at,                             -- when it got its disposition
       extract(epoch FROM ended_at - admitted_at)::numeric(14, 3) AS seconds  -- from admission to disposition
  FROM public.runs;
