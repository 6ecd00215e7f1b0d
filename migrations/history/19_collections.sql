-- A collection of documents.
CREATE VIEW history.collections AS
SELECT name,                                 -- its name
       description,                          -- what is in it, in a person's words
       embedding_model,                      -- the model that embedded it
       dimension,                            -- numbers in a vector
       version,                              -- another number after each change of its documents
       ARRAY(SELECT collection_aliases.name FROM public.collection_aliases
              WHERE collection_aliases.target = collections.name ORDER BY 1) AS aliases,  -- its other names
       created_at                            -- when it was made
  FROM public.collections;
