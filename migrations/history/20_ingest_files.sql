-- A file, site or repository handed to `cragline ingest`, or another piece of work on a collection.
CREATE VIEW history.ingest_files AS
SELECT id AS ingest_file_id,                 -- its number
       ingest_id,                            -- the call of `cragline ingest` it belongs to
       collection,                           -- the collection
       kind,                                 -- file, site, repository, prune or delete
       path,                                 -- what was handed in; empty where the whole collection is meant
       status,                               -- pending, running, done or failed
       documents,                            -- documents found in it
       chunks_added,                         -- passages added
       chunks_unchanged,                     -- passages that were there already
       chunks_removed,                       -- passages removed
       documents_removed,                    -- documents removed
       error,                                -- why it failed
       notes,                                -- what was noted on reading it
       worker,                               -- the worker that took it
       created_at,                           -- when it was handed in
       started_at,                           -- when the worker began
       ended_at                              -- when it was done or failed
  FROM public.ingest_files;
