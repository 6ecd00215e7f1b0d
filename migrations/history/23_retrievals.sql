-- A search of the store, with what it found.
CREATE VIEW history.retrievals AS
SELECT id AS retrieval_id,                   -- its number
       batch_id,                             -- the batch
       run_id,                               -- the run
       step,                                 -- superstep
       branch,                               -- branch of a fan-out
       attempt,                              -- attempt of the node that searched
       collection,                           -- the collection
       collection_version,                   -- its version then: another one after each change of its documents
       query,                                -- what was searched for
       k,                                    -- documents asked for
       mode,                                 -- dense, sparse or hybrid
       filters,                              -- JSON object: only documents that match were looked at
       documents,                            -- JSON list of the documents found, best first
       cost_usd,                             -- cost of embedding the query, a call of history.model_calls too; NULL where it is not known
       reused_from,                          -- the row of this view whose result was taken over; NULL: it was searched
       saved_usd,                            -- what that one had cost
       duration_ms,                          -- how long it took, in milliseconds
       retrieved_at                          -- when it was stored
  FROM public.retrievals;
