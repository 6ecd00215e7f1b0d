CREATE VIEW grade_history AS
SELECT grades.batch_id,
       grades.run_id,
       runs.question,
       grades.step,
       grades.branch AS document_rank,
       grades.document_id,
       grades.title,
       grades.source,
       grades.page,
       grades.retrieval_score,
       grades.label,
       grades.score,
       grades.model,
       grades.prompt_version,
       grades.detail,
       grades.graded_at,
       runs.status AS disposition
  FROM grades
  JOIN runs ON runs.id = grades.run_id;

COMMENT ON VIEW grade_history IS
'One row a graded document. document_rank counts from 0 in the order of the retrieval. Filter: WHERE batch_id = ... or source = ...';
