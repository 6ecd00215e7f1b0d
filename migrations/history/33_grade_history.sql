-- Every graded document, with its question and what became of it.
CREATE VIEW history.grade_history AS
SELECT batch_id,                             -- the batch
       run_id,                               -- the run
       question,                             -- the question
       step,                                 -- superstep in which it was graded
       document_rank,                        -- place in the retrieval, from 0
       document_id,                          -- id of the passage in the vector store
       title,                                -- title of the document
       source,                               -- the document
       page,                                 -- page of a PDF
       retrieval_score,                      -- the store's score
       label,                                -- relevant, not_relevant or unparsed
       score,                                -- the grader's score
       model,                                -- the model that graded
       prompt_version,                       -- version of its prompt
       detail,                               -- what the model said beside the label
       graded_at,                            -- when
       disposition                           -- how the run ended, or pending or running
  FROM public.grade_history;
