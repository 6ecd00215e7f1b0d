-- How each node did in each batch. Skipped branches were no attempts.
CREATE VIEW history.node_stats AS
SELECT batch_id,                             -- the batch
       pipeline,                             -- the pipeline
       node,                                 -- the node
       attempts,                             -- attempts, whatever became of them
       succeeded,                            -- attempts that counted
       retried,                              -- attempts that failed and were followed by another
       failed,                               -- attempts that failed for good
       lost,                                 -- attempts whose worker was lost
       skipped,                              -- branches not started because they were no longer needed
       p50_ms,                               -- median duration in milliseconds
       p95_ms,                               -- the duration that 95 of 100 attempts do not exceed
       input_tokens,                         -- tokens sent
       output_tokens,                        -- tokens that came back
       cost_usd                              -- cost in US dollars
  FROM public.node_stats;
