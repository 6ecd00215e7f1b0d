-- history.what_if for a batch of crag, with all its settings resolved. relevant_at is NULL where it is not asked about.
CREATE FUNCTION history.what_if_crag(batch_id bigint, old jsonb, new jsonb, relevant_at double precision)
RETURNS TABLE (
    run_id bigint, relevant_before bigint, relevant_now bigint, action_before text, action_now text,
    kept_before bigint, kept_now bigint, way_before text[], way_now text[], ungraded bigint
) LANGUAGE sql STABLE AS $$
WITH decided AS (
    SELECT decisions.run_id, decisions.step, decisions.action FROM history.decisions
     WHERE decisions.batch_id = what_if_crag.batch_id),
graded AS (  -- the grades that this decision saw
    SELECT decided.run_id, grades.document_id, grades.label, grades.score,
           history.regraded(grades.label, grades.score, what_if_crag.relevant_at) AS new_label
      FROM decided
      JOIN LATERAL (SELECT max(grades.step) AS step FROM history.grades
                     WHERE grades.run_id = decided.run_id AND grades.step < decided.step) AS last ON true
      JOIN history.grades ON grades.run_id = decided.run_id AND grades.step = last.step),
counted AS (
    SELECT decided.run_id, decided.step, decided.action, count(graded.run_id) AS retrieved,
           count(*) FILTER (WHERE graded.label = 'relevant') AS relevant,
           count(*) FILTER (WHERE graded.new_label = 'relevant') AS new_relevant,
           max(graded.score) AS best_score,
           bool_and(coalesce(graded.score < (new ->> 'lower')::double precision, false)) AS new_all_below
      FROM decided LEFT JOIN graded ON graded.run_id = decided.run_id
     GROUP BY decided.run_id, decided.step, decided.action),
acted AS (
    SELECT counted.*, history.crag_action(new, retrieved, new_relevant, best_score, new_all_below) AS new_action
      FROM counted),
kept AS (
    SELECT acted.run_id,
           count(DISTINCT document_id) FILTER (WHERE history.crag_keeps(old, acted.action, label, score)) AS before,
           count(DISTINCT document_id) FILTER (WHERE history.crag_keeps(new, acted.new_action, new_label, score)) AS now
      FROM acted JOIN graded ON graded.run_id = acted.run_id
     GROUP BY acted.run_id)
SELECT acted.run_id, acted.relevant, acted.new_relevant, acted.action, acted.new_action,
       coalesce(kept.before, 0), coalesce(kept.now, 0),
       history.crag_way(old, acted.action, coalesce(kept.before, 0)),
       history.crag_way(new, acted.new_action, coalesce(kept.now, 0)),
       (SELECT count(*) FROM history.transitions
         WHERE transitions.run_id = acted.run_id AND transitions.step < acted.step
           AND transitions.node = 'grade_document' AND transitions.status = 'skipped')
  FROM acted LEFT JOIN kept ON kept.run_id = acted.run_id
$$;
