-- One web search, with its results.
CREATE VIEW history.web_searches AS
SELECT id AS search_id,                      -- the search's number
       batch_id,                             -- the batch
       run_id,                               -- the run
       step,                                 -- superstep
       branch,                               -- branch of a fan-out
       attempt,                              -- attempt of the node that searched
       provider,                             -- who searched: tavily
       query,                                -- the words searched for
       request_hash,                         -- SHA-256 of the request
       status,                               -- ok or error
       results,                              -- JSON list of {title, source, text, score}
       error_class,                          -- kind of error
       error,                                -- the error in words
       cost_usd,                             -- cost in US dollars; NULL where the price is not known
       duration_ms,                          -- how long it took, in milliseconds
       reused_from,                          -- the row of this view whose result was taken over; NULL: it was asked
       saved_usd,                            -- what that one had cost
       searched_at                           -- when it was stored
  FROM public.web_searches;
