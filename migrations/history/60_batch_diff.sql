-- Two batches, question by question. Questions are matched by their text, white space aside; those of one batch only stand there too.
CREATE FUNCTION history.batch_diff(batch_a bigint, batch_b bigint)
RETURNS TABLE (
    question text,              -- the question
    run_a bigint,               -- its run in A; NULL where A does not ask it
    run_b bigint,               -- its run in B; NULL where B does not ask it
    disposition_a text,         -- how it ended in A
    disposition_b text,         -- how it ended in B
    answer_a text,              -- the answer of A, or its reason or error
    answer_b text,              -- the answer of B, or its reason or error
    sources_a text[],           -- the sources that A cites
    sources_b text[],           -- the sources that B cites
    cost_a numeric,             -- what A paid for it, in US dollars
    cost_b numeric,             -- what B paid for it
    grades_changed bigint,      -- passages graded by both with different labels
    documents_changed bigint,   -- passages graded by one of them only
    changed text[]              -- what differs: only_in_a, only_in_b, disposition, answer, sources, cost, grades, documents
) LANGUAGE sql STABLE ROWS 1000 AS $$
WITH asked AS MATERIALIZED (
    SELECT runs.batch_id, runs.run_id, runs.first_row, runs.question, runs.status,
           coalesce(runs.answer, runs.reason, runs.error) AS answer,
           ARRAY(SELECT source ->> 'source' FROM jsonb_array_elements(runs.sources) AS source) AS sources,
           run_costs.cost_usd, matched.key,
           coalesce(
               runs.reused_from,  -- the grades of a run that was taken over are those of the original
               runs.run_id) AS graded_run,
           row_number() OVER (PARTITION BY runs.batch_id, matched.key ORDER BY runs.first_row, runs.run_id) AS place
      FROM history.runs
      JOIN history.run_costs ON run_costs.run_id = runs.run_id
     CROSS JOIN LATERAL (SELECT regexp_replace(btrim(normalize(runs.question)), '\s+', ' ', 'g') AS key) AS matched
     WHERE runs.batch_id IN (batch_a, batch_b)),
pairs AS MATERIALIZED (
    SELECT a.run_id AS run_a, b.run_id AS run_b, a.graded_run AS graded_a, b.graded_run AS graded_b
      FROM (SELECT * FROM asked WHERE batch_id = batch_a) AS a
      FULL JOIN (SELECT * FROM asked WHERE batch_id = batch_b) AS b ON b.key = a.key AND b.place = a.place),
labels AS MATERIALIZED (
    SELECT DISTINCT ON (grades.run_id, grades.document_id) grades.run_id, grades.document_id, grades.label
      FROM history.grades WHERE grades.run_id IN (SELECT graded_run FROM asked)
     ORDER BY grades.run_id, grades.document_id, grades.step DESC),
regraded AS (
    SELECT pairs.run_a, pairs.run_b,
           count(*) FILTER (WHERE a.label <> b.label) AS grades_changed,
           count(*) FILTER (WHERE a.label IS NULL OR b.label IS NULL) AS documents_changed
      FROM pairs
      JOIN (SELECT run_a, document_id FROM pairs JOIN labels ON labels.run_id = graded_a
             UNION
            SELECT run_a, document_id FROM pairs JOIN labels ON labels.run_id = graded_b) AS seen ON seen.run_a = pairs.run_a
      LEFT JOIN labels AS a ON a.run_id = pairs.graded_a AND a.document_id = seen.document_id
      LEFT JOIN labels AS b ON b.run_id = pairs.graded_b AND b.document_id = seen.document_id
     WHERE pairs.run_b IS NOT NULL
     GROUP BY pairs.run_a, pairs.run_b)
SELECT coalesce(a.question, b.question), pairs.run_a, pairs.run_b, a.status, b.status, a.answer, b.answer,
       a.sources, b.sources, a.cost_usd, b.cost_usd,
       coalesce(regraded.grades_changed, 0), coalesce(regraded.documents_changed, 0),
       CASE WHEN b.run_id IS NULL THEN ARRAY['only_in_a'] WHEN a.run_id IS NULL THEN ARRAY['only_in_b'] ELSE
       array_remove(ARRAY[
           CASE WHEN a.status <> b.status THEN 'disposition' END,
           CASE WHEN a.answer IS DISTINCT FROM b.answer THEN 'answer' END,
           CASE WHEN a.sources <> b.sources THEN 'sources' END,
           CASE WHEN a.cost_usd <> b.cost_usd THEN 'cost' END,
           CASE WHEN regraded.grades_changed > 0 THEN 'grades' END,
           CASE WHEN regraded.documents_changed > 0 THEN 'documents' END], NULL) END
  FROM pairs
  LEFT JOIN asked AS a ON a.run_id = pairs.run_a
  LEFT JOIN asked AS b ON b.run_id = pairs.run_b
  LEFT JOIN regraded ON regraded.run_a = pairs.run_a AND regraded.run_b = pairs.run_b
 ORDER BY coalesce(a.first_row, b.first_row), pairs.run_a, pairs.run_b
$$;
