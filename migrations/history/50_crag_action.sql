-- The action of crag's node `decide` for counted grades: generate or search by the rules ratio and none_relevant; correct, incorrect or ambiguous by confidence. all_below: every grade has a score, and it is below lower.
CREATE FUNCTION history.crag_action(settings jsonb, retrieved bigint, relevant bigint, best_score double precision, all_below boolean)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE
       WHEN retrieved = 0 THEN CASE settings ->> 'rule' WHEN 'confidence' THEN 'incorrect' ELSE 'search' END
       WHEN settings ->> 'rule' = 'ratio'
       THEN CASE WHEN relevant::double precision / retrieved <= (settings ->> 'ratio')::double precision
                 THEN 'search' ELSE 'generate' END
       WHEN settings ->> 'rule' = 'none_relevant' THEN CASE WHEN relevant > 0 THEN 'generate' ELSE 'search' END
       WHEN best_score > (settings ->> 'upper')::double precision THEN 'correct'
       WHEN all_below THEN 'incorrect'
       ELSE 'ambiguous' END
$$;
