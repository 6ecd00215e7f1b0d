-- The verdict on one document for one question.
CREATE VIEW history.grades AS
SELECT batch_id,                             -- the batch
       run_id,                               -- the run
       step,                                 -- superstep in which it was graded
       branch AS document_rank,              -- place in the retrieval, from 0, best first
       document_id,                          -- id of the passage in the vector store
       title,                                -- title of the document, with the headings above the passage
       source,                               -- the document: a path, a URL, `path#id` or `repository:path`
       page,                                 -- page of a PDF, from 1; NULL elsewhere
       retrieval_score,                      -- the store's score, by which the rank was made
       label,                                -- relevant, not_relevant or unparsed
       score,                                -- the grader's score from 0 to 1; NULL where it gave none
       model,                                -- the model that graded
       prompt_version,                       -- version of its prompt; none for local models
       detail,                               -- what the model said beside the label
       graded_at                             -- when
  FROM public.grades;
