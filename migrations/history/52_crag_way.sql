-- The nodes that crag goes through after `decide`, as far as the decision settles it: a web search is taken to find something, and refining to leave something.
CREATE FUNCTION history.crag_way(settings jsonb, action text, kept bigint)
RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN settings ->> 'refine' = 'on' AND kept > 0 THEN '{refine_document,recompose}' ELSE '{}' END::text[]
    || CASE WHEN (action IN ('search', 'incorrect', 'ambiguous') OR kept = 0) AND settings ->> 'web_search' = 'on'
            THEN CASE settings ->> 'rewrite' WHEN 'on' THEN '{rewrite_query,web_search,generate}'
                                             ELSE '{web_search,generate}' END
            WHEN kept > 0 THEN '{generate}'
            ELSE '{give_up}' END::text[]
$$;
