-- A row of a submitted file, with its cells as they came. Rows that ask the same question share a run.
CREATE VIEW history.rows AS
SELECT batch_id,                             -- the batch
       row_number,                           -- place in the file, from 1, the header not counted
       run_id,                               -- the run that answers it; NULL where the question cell was empty
       original,                             -- the cells as a JSON list (CSV), or the JSON object (JSONL)
       notes                                 -- what was mended when the row was read
  FROM public.batch_rows;
