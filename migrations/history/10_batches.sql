-- A submitted file of questions with its frozen plan.
CREATE VIEW history.batches AS
SELECT id AS batch_id,                       -- the batch's number
       name,                                 -- the file's name, or the one given with --name
       status,                               -- open, paused, ended or cancelled; more in docs/history.md
       pipeline,                             -- rag, crag, self_rag or adaptive
       collection,                           -- the collection that was searched
       plan ->> 'provider' AS provider,      -- who plays the models: local or openai
       plan -> 'models' AS models,           -- JSON object: role -> model
       plan -> 'prompts' AS prompts,         -- JSON object: prompt -> version; empty until the first admission
       plan -> 'params' AS params,           -- JSON object: the pipeline's parameters, all resolved
       plan,                                 -- the whole plan as it was frozen at submission
       source,                               -- JSON object: file, format, encoding, columns, notes on reading it
       row_count,                            -- rows of the file, empty ones included
       run_count,                            -- distinct questions, each of which is a run
       month,                                -- first day of the month of submission: the partition of its transitions
       submitted_by,                         -- who submitted it, by a name of their own
       owner,                                -- owner of the API key it was submitted with; NULL: the command line
       pause_reason,                         -- why it is paused, or was last
       priority,                             -- the higher is admitted first
       weight,                               -- share of the window among batches of one priority
       max_in_flight,                        -- runs of it at once; NULL: as many as the window holds
       max_cost_usd,                         -- cap on its cost in US dollars; NULL: none
       max_tokens,                           -- cap on its tokens; NULL: none
       submitted_at,                         -- when it was submitted
       ended_at                              -- when its last run ended; NULL while it is open
  FROM public.batches;
