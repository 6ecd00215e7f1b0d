-- A document that is in a collection now.
CREATE VIEW history.documents AS
SELECT collection,                           -- the collection
       source,                               -- its identity, as in history.grades.source
       path,                                 -- the file or page it came from
       root,                                 -- what was ingested: the file, site or repository
       title,                                -- its title
       content_hash,                         -- SHA-256 over text, title, pages and the way it was cut
       cardinality(chunk_ids) AS chunks,     -- number of passages it was cut into
       chunk_ids,                            -- their ids in the vector store, as in history.grades.document_id
       embedding_model,                      -- the model that embedded it
       ingested_at                           -- when this version was taken in
  FROM public.documents;
