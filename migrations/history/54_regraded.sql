-- The label that a local model would have given with another relevant_at; NULL for it leaves the label as it was.
CREATE FUNCTION history.regraded(label text, score double precision, relevant_at double precision)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN relevant_at IS NULL OR score IS NULL OR label = 'unparsed' THEN label
            WHEN score >= relevant_at THEN 'relevant' ELSE 'not_relevant' END
$$;
