-- One call of a model, with its response, tokens and cost.
CREATE VIEW history.model_calls AS
SELECT id AS call_id,                        -- the call's number
       batch_id,                             -- the batch
       run_id,                               -- the run
       step,                                 -- superstep
       branch,                               -- branch of a fan-out
       attempt,                              -- attempt of the node that made the call
       node,                                 -- the node that made it
       role,                                 -- the part the model played, such as relevance_grader
       provider,                             -- local or openai
       model,                                -- the model
       prompt_version,                       -- version of the prompt, as in history.prompts
       request_hash,                         -- SHA-256 of the request; the same request has the same one
       status,                               -- ok or error
       response,                             -- JSON: what came back, as the program understood it; NULL for embeddings
       error_class,                          -- kind of error
       error,                                -- the error in words
       input_tokens,                         -- tokens sent; NULL where the provider did not tell
       output_tokens,                        -- tokens that came back
       cost_usd,                             -- cost in US dollars; NULL where the price is not known
       duration_ms,                          -- how long it took, in milliseconds
       reused_from,                          -- the row of this view whose result was taken over; NULL: it was asked
       saved_usd,                            -- what that one had cost
       called_at                             -- when it was stored
  FROM public.model_calls;
