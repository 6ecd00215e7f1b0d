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
       admitted_at,                          -- when the dispatcher took it up
       ended_at,                             -- when it got its disposition
       round(extract(epoch FROM ended_at - admitted_at)::numeric, 3) AS seconds  -- from admission to disposition
  FROM public.runs;
