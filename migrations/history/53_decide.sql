-- The decision of crag's node `decide` for a JSON list of grades {label, score} under settings {rule, ratio, upper, lower}: {rule, action, retrieved, relevant, unparsed, best_score}.
CREATE FUNCTION history.decide(grades jsonb, settings jsonb)
RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT jsonb_build_object(
           'rule', settings ->> 'rule',
           'action', history.crag_action(settings, retrieved, relevant, best_score, all_below),
           'retrieved', retrieved, 'relevant', relevant, 'unparsed', unparsed, 'best_score', best_score)
  FROM (SELECT count(*) AS retrieved,
               count(*) FILTER (WHERE grade ->> 'label' = 'relevant') AS relevant,
               count(*) FILTER (WHERE grade ->> 'label' = 'unparsed') AS unparsed,
               max((grade ->> 'score')::double precision) AS best_score,
               bool_and(coalesce((grade ->> 'score')::double precision < (settings ->> 'lower')::double precision, false))
                   AS all_below
          FROM jsonb_array_elements(grades) AS grade) AS counted
$$;
