-- Whether crag keeps a graded document to answer from, once the action is known.
CREATE FUNCTION history.crag_keeps(settings jsonb, action text, label text, score double precision)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE
       WHEN settings ->> 'rule' <> 'confidence' THEN label = 'relevant'
       WHEN action = 'incorrect' THEN false
       ELSE score IS NOT NULL AND score >= (settings ->> 'lower')::double precision END
$$;
