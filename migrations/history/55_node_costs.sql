-- What each node of a batch cost in the mean of the runs that went through it. What an estimate of history.what_if rests on.
CREATE FUNCTION history.node_costs(batch_id bigint)
RETURNS TABLE (
    node text,                -- the node
    runs bigint,              -- runs of the batch that went through it
    cost_usd numeric,         -- mean cost for a run, all attempts and branches; NULL where a price is not known
    branches numeric,         -- mean number of branches of a run
    branch_cost_usd numeric   -- mean cost for a branch
) LANGUAGE sql STABLE AS $$
SELECT own.node, count(*), CASE WHEN count(*) = count(own.cost_usd) THEN avg(own.cost_usd) END,
       avg(own.branches), CASE WHEN count(*) = count(own.cost_usd) THEN sum(own.cost_usd) / sum(own.branches) END
  FROM (SELECT transitions.node, transitions.run_id, count(DISTINCT (step, branch)) AS branches,
               -- a node that asked no model cost nothing; one that did, at no known price, an unknown sum
               CASE WHEN bool_or(transitions.cost_usd IS NULL AND transitions.input_tokens IS NOT NULL) THEN NULL
                    ELSE coalesce(sum(transitions.cost_usd), 0) END AS cost_usd
          FROM history.transitions
         WHERE transitions.batch_id = node_costs.batch_id AND transitions.status <> 'skipped'
         GROUP BY transitions.node, transitions.run_id) AS own
 GROUP BY own.node
$$;
