-- history.what_if for a batch of self_rag or adaptive: the first round of grading only, because what the later rounds would have retrieved is not known.
CREATE FUNCTION history.what_if_judged(batch_id bigint, pipeline text, params jsonb, relevant_at double precision)
RETURNS TABLE (
    run_id bigint, relevant_before bigint, relevant_now bigint, action_before text, action_now text,
    kept_before bigint, kept_now bigint, way_before text[], way_now text[], ungraded bigint
) LANGUAGE sql STABLE AS $$
WITH first_round AS (
    SELECT grades.run_id, min(grades.step) AS step FROM history.grades
     WHERE grades.batch_id = what_if_judged.batch_id GROUP BY grades.run_id),
counted AS (
    SELECT first_round.run_id, first_round.step,
           count(DISTINCT document_id) FILTER (WHERE label = 'relevant') AS before,
           count(DISTINCT document_id)
               FILTER (WHERE history.regraded(label, score, what_if_judged.relevant_at) = 'relevant') AS now
      FROM first_round
      JOIN history.grades ON grades.run_id = first_round.run_id AND grades.step = first_round.step
     GROUP BY first_round.run_id, first_round.step),
routed AS (
    SELECT counted.*, CASE
           WHEN pipeline = 'self_rag'
           THEN CASE WHEN (params ->> 'max_rewrites')::int > 0 THEN 'rewrite_query' ELSE 'give_up' END
           WHEN (params ->> 'max_retrievals')::int > 1 THEN 'feedback_on_query'
           WHEN params ->> 'web_search' = 'on' AND mode.mode = 'vectorstore' THEN 'switch_to_web'
           ELSE 'apologise' END AS without,
           CASE pipeline WHEN 'self_rag' THEN 'generate' ELSE 'extract_knowledge' END AS onward
      FROM counted
      LEFT JOIN LATERAL (
           SELECT transitions.state_update ->> 'mode' AS mode FROM history.transitions
            WHERE transitions.run_id = counted.run_id AND transitions.step < counted.step
              AND transitions.node = 'route' AND transitions.status = 'succeeded'
            ORDER BY transitions.step DESC LIMIT 1) AS mode ON true)
SELECT routed.run_id, before, now,
       CASE WHEN before > 0 THEN 'answer' ELSE 'search again' END,
       CASE WHEN now > 0 THEN 'answer' ELSE 'search again' END,
       before, now,
       ARRAY[CASE WHEN before > 0 THEN onward ELSE without END],
       ARRAY[CASE WHEN now > 0 THEN onward ELSE without END],
       (SELECT count(*) FROM history.transitions
         WHERE transitions.run_id = routed.run_id AND transitions.step = routed.step
           AND transitions.node = 'grade_document' AND transitions.status = 'skipped')
  FROM routed
$$;
