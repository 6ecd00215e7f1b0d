-- What the stored grades of a batch would have led to under other settings, such as '{"rule": "ratio", "ratio": 0.5}'. No model is asked. For crag: rule, ratio, upper, lower, relevant_at (local models), refine, rewrite, web_search; for self_rag and adaptive: relevant_at, in the first round of grading.
CREATE FUNCTION history.what_if(batch_id bigint, settings jsonb)
RETURNS TABLE (
    run_id bigint,              -- the run; runs that never came to a decision are left out
    question text,              -- its question
    disposition text,           -- how it really ended
    action_before text,         -- what was decided
    action_now text,            -- what would have been decided
    relevant_before bigint,     -- relevant documents
    relevant_now bigint,        -- documents that would have counted as relevant
    kept_before bigint,         -- documents kept to answer from
    kept_now bigint,            -- documents that would have been kept
    way_before text,            -- the nodes that followed, as far as the decision settles them
    way_now text,               -- the nodes that would have followed
    other_way boolean,          -- whether these differ
    other_knowledge boolean,    -- whether the number of kept documents differs: the answer may, too
    cost_change_usd numeric,    -- estimated; NULL where it cannot be estimated from this batch
    rests_on text,              -- what the estimate rests on, or what it lacks
    not_known text[]            -- what the stored grades cannot tell about this run
) LANGUAGE plpgsql STABLE ROWS 1000 AS $$
#variable_conflict use_column
DECLARE
    batch record;
    old jsonb;
    new jsonb := history.what_if_settings(what_if.batch_id, what_if.settings);
    line double precision := (what_if.settings ->> 'relevant_at')::double precision;
BEGIN
    SELECT batches.pipeline, batches.params INTO batch FROM history.batches WHERE batches.batch_id = what_if.batch_id;
    old := batch.params;
    IF batch.pipeline = 'crag' THEN
        RETURN QUERY
        WITH costs AS MATERIALIZED (SELECT * FROM history.node_costs(what_if.batch_id)),
        asked AS MATERIALIZED (SELECT * FROM history.what_if_crag(what_if.batch_id, old, new, line)),
        own AS MATERIALIZED (
            SELECT transitions.run_id, transitions.node, sum(transitions.cost_usd) AS cost_usd
              FROM history.transitions WHERE transitions.batch_id = what_if.batch_id GROUP BY 1, 2),
        priced AS (
            SELECT asked.run_id, sum(change.cost_usd) AS change, bool_or(change.cost_usd IS NULL) AS unknown,
                   string_agg(change.words, '; ' ORDER BY change.place, change.node) AS words
              FROM asked
             CROSS JOIN LATERAL (
                   -- what would have come in addition costs what it cost other runs of the batch
                   SELECT added.node, 1 AS place,
                          CASE added.node WHEN 'refine_document' THEN costs.branch_cost_usd * asked.kept_now
                                          ELSE costs.cost_usd END AS cost_usd,
                          CASE WHEN costs.runs IS NULL THEN '+ ' || added.node || ': never run in this batch'
                               WHEN costs.cost_usd IS NULL THEN '+ ' || added.node || ': no known price'
                               ELSE '+ ' || added.node || ': mean of ' || costs.runs || ' runs' END AS words
                     FROM unnest(asked.way_now) AS added (node) LEFT JOIN costs ON costs.node = added.node
                    WHERE added.node <> ALL (asked.way_before) AND added.node NOT IN ('recompose', 'give_up')
                   UNION ALL
                   -- what would have been left out saves what it cost this run
                   SELECT saved.node, 2, -coalesce(own.cost_usd, 0), '- ' || saved.node || ': its own cost'
                     FROM unnest(asked.way_before) AS saved (node)
                     LEFT JOIN own ON own.run_id = asked.run_id AND own.node = saved.node
                    WHERE saved.node <> ALL (asked.way_now) AND saved.node NOT IN ('recompose', 'give_up')
                   UNION ALL
                   SELECT costs.node, 3, costs.branch_cost_usd * (asked.kept_now - asked.kept_before),
                          'refine_document: mean of a document'
                     FROM costs
                    WHERE costs.node = 'refine_document' AND costs.node = ANY (asked.way_now)
                      AND costs.node = ANY (asked.way_before) AND asked.kept_now <> asked.kept_before) AS change
             GROUP BY asked.run_id)
        SELECT runs.run_id, runs.question, runs.status, asked.action_before, asked.action_now,
               asked.relevant_before, asked.relevant_now, asked.kept_before, asked.kept_now,
               array_to_string(asked.way_before, ' > '), array_to_string(asked.way_now, ' > '),
               asked.way_before <> asked.way_now, asked.kept_before <> asked.kept_now,
               CASE WHEN priced.run_id IS NULL THEN 0 WHEN NOT priced.unknown THEN priced.change END, priced.words,
               array_remove(ARRAY[
                   CASE WHEN asked.ungraded > 0
                        THEN asked.ungraded || ' documents were not graded: enough were relevant before' END,
                   CASE WHEN 'web_search' = ANY (asked.way_now) AND 'web_search' <> ALL (asked.way_before)
                        THEN 'what the web search would have found' END,
                   CASE WHEN 'refine_document' = ANY (asked.way_now) AND 'refine_document' <> ALL (asked.way_before)
                        THEN 'what refining would have left' END], NULL)
          FROM asked JOIN history.runs ON runs.run_id = asked.run_id
          LEFT JOIN priced ON priced.run_id = asked.run_id
         ORDER BY runs.first_row, runs.run_id;
        RETURN;
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (SELECT * FROM history.what_if_judged(what_if.batch_id, batch.pipeline, old, line)),
    whole AS MATERIALIZED (
        SELECT run_costs.run_id, CASE WHEN run_costs.unpriced = 0 THEN run_costs.cost_usd END AS cost_usd
          FROM history.run_costs WHERE run_costs.batch_id = what_if.batch_id),
    usual AS (
        SELECT asked.way_before AS way, count(*) AS runs, avg(whole.cost_usd) AS cost_usd
          FROM asked JOIN whole ON whole.run_id = asked.run_id GROUP BY asked.way_before)
    SELECT runs.run_id, runs.question, runs.status, asked.action_before, asked.action_now,
           asked.relevant_before, asked.relevant_now, asked.kept_before, asked.kept_now,
           array_to_string(asked.way_before, ' > '), array_to_string(asked.way_now, ' > '),
           asked.way_before <> asked.way_now, asked.kept_before <> asked.kept_now,
           CASE WHEN asked.way_before = asked.way_now THEN 0 ELSE usual.cost_usd - whole.cost_usd END,
           CASE WHEN asked.way_before = asked.way_now THEN NULL
                WHEN usual.runs IS NULL THEN 'no run of this batch went that way'
                ELSE 'mean of the ' || usual.runs || ' runs that went that way, less this run''s own cost' END,
           array_remove(ARRAY['what the loops after the first round of grading would have done',
               CASE WHEN asked.ungraded > 0
                    THEN asked.ungraded || ' documents were not graded: enough were relevant before' END], NULL)
      FROM asked JOIN history.runs ON runs.run_id = asked.run_id
      JOIN whole ON whole.run_id = asked.run_id
      LEFT JOIN usual ON usual.way = asked.way_now
     ORDER BY runs.first_row, runs.run_id;
END $$;
