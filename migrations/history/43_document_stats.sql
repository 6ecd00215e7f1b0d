-- How often each document was retrieved in a batch, how it was graded, and how often an answer cites it.
CREATE VIEW history.document_stats AS
WITH cited AS (
    SELECT runs.batch_id, source ->> 'source' AS source, count(DISTINCT runs.id) AS answers
      FROM public.runs CROSS JOIN LATERAL jsonb_array_elements(runs.sources) AS source
     WHERE runs.status = 'answered'
     GROUP BY 1, 2)
SELECT graded.batch_id,                      -- the batch
       graded.source,                        -- the document
       graded.graded,                        -- times one of its passages was retrieved and graded
       graded.questions,                     -- distinct questions for which it was
       graded.relevant,                      -- times graded relevant
       graded.not_relevant,                  -- times graded not relevant
       graded.unparsed,                      -- times the verdict was neither yes nor no
       graded.mean_score,                    -- mean of the grader's scores
       coalesce(cited.answers, 0) AS cited   -- answers that cite it
  FROM (SELECT batch_id, source, count(*) AS graded, count(DISTINCT run_id) AS questions,
               count(*) FILTER (WHERE label = 'relevant') AS relevant,
               count(*) FILTER (WHERE label = 'not_relevant') AS not_relevant,
               count(*) FILTER (WHERE label = 'unparsed') AS unparsed,
               round(avg(score)::numeric, 3) AS mean_score
          FROM public.grades
         GROUP BY batch_id, source) AS graded
  LEFT JOIN cited ON cited.batch_id = graded.batch_id AND cited.source = graded.source;
