-- What each run cost. Money is in US dollars; calls whose price is not known count as nothing, and are counted.
CREATE VIEW history.run_costs AS
SELECT runs.batch_id,                        -- the batch
       runs.id AS run_id,                    -- the run
       runs.status AS disposition,           -- how it ended, or pending or running
       calls.calls,                          -- calls of models, failed ones included
       calls.unpriced,                       -- of these, calls whose price is not known
       searches.searches,                    -- web searches, failed ones included
       calls.input_tokens,                   -- tokens sent to models
       calls.output_tokens,                  -- tokens that came back
       coalesce(calls.cost_usd, 0) AS model_cost_usd,    -- cost of the models
       coalesce(searches.cost_usd, 0) AS web_cost_usd,   -- cost of the web searches
       coalesce(calls.cost_usd, 0) + coalesce(searches.cost_usd, 0) AS cost_usd  -- both
  FROM public.runs
 CROSS JOIN LATERAL (
       SELECT count(*) AS calls, count(*) FILTER (WHERE model_calls.cost_usd IS NULL) AS unpriced,
              sum(model_calls.input_tokens) AS input_tokens, sum(model_calls.output_tokens) AS output_tokens,
              sum(model_calls.cost_usd) AS cost_usd
         FROM public.model_calls WHERE model_calls.run_id = runs.id) AS calls
 CROSS JOIN LATERAL (
       SELECT count(*) AS searches, sum(web_searches.cost_usd) AS cost_usd
         FROM public.web_searches WHERE web_searches.run_id = runs.id) AS searches;
