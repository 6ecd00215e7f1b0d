-- The way each run took through its graph: the nodes that counted, in order, a fan-out once.
CREATE VIEW history.run_paths AS
SELECT batch_id,                             -- the batch
       run_id,                               -- the run
       string_agg(node, ' > ' ORDER BY step, node) AS path  -- such as retrieve > grade_document > decide > generate
  FROM (SELECT DISTINCT batch_id, run_id, step, node
          FROM public.transitions WHERE status = 'succeeded') AS steps
 GROUP BY batch_id, run_id;
