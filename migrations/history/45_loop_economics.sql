-- What each rewrite, web search, regeneration and retry cost, and whether it changed the verdict. A verdict is that of decide, select, assemble or a check (good: go on and answer), or the end of the run; of a retry it is the outcome of the attempt.
CREATE VIEW history.loop_economics AS
WITH counted AS NOT MATERIALIZED (
    SELECT transitions.*, coalesce(transitions.cost_usd, 0) AS cost,
           CASE node
           WHEN 'decide' THEN state_update -> 'decision' ->> 'action'
           WHEN 'select' THEN CASE jsonb_array_length(state_update -> 'knowledge') WHEN 0 THEN 'none relevant' ELSE 'relevant' END
           WHEN 'assemble' THEN CASE jsonb_array_length(state_update -> 'knowledge') WHEN 0 THEN 'nothing taken' ELSE 'knowledge' END
           WHEN 'check_groundedness' THEN coalesce(nullif(state_update ->> 'problem', ''), 'grounded')
           WHEN 'check_answer' THEN coalesce(nullif(state_update ->> 'problem', ''), 'answers')
           WHEN 'generate' THEN nullif(state_update ->> 'problem', '')
           END AS verdict
      FROM public.transitions WHERE status = 'succeeded'),
loops AS (
    SELECT *, CASE WHEN node = 'rewrite_query' THEN 'rewrite'
                   WHEN node = 'web_search' THEN 'web_search'
                   WHEN node = 'generate' AND lag(step) OVER (PARTITION BY batch_id, run_id, node ORDER BY step) IS NOT NULL
                   THEN 'regenerate' END AS kind
      FROM counted WHERE node IN ('rewrite_query', 'web_search', 'generate')),
judged AS (
    SELECT loops.batch_id, loops.run_id, loops.kind, loops.step, loops.branch, loops.attempt, loops.node,
           loops.duration_ms, loops.cost_usd, earlier.verdict AS verdict_before,
           coalesce(later.verdict, runs.status) AS verdict_after, later.step AS until_step
      FROM loops
      JOIN public.runs ON runs.id = loops.run_id
      LEFT JOIN LATERAL (
           SELECT verdict FROM counted
            WHERE counted.month = loops.month AND counted.run_id = loops.run_id AND counted.step < loops.step
              AND counted.verdict IS NOT NULL
            ORDER BY counted.step DESC LIMIT 1) AS earlier ON true
      LEFT JOIN LATERAL (
           SELECT verdict, step FROM counted
            WHERE counted.month = loops.month AND counted.run_id = loops.run_id AND counted.step >= loops.step
              AND counted.verdict IS NOT NULL
            ORDER BY counted.step LIMIT 1) AS later ON true
     WHERE loops.kind IS NOT NULL),
told AS (
    SELECT judged.*,
           (SELECT sum(counted.cost) FROM counted
             WHERE counted.run_id = judged.run_id AND counted.step >= judged.step
               AND (judged.until_step IS NULL OR counted.step <= judged.until_step)) AS cost_until_verdict_usd,
           verdict_before IN ('generate', 'correct', 'relevant', 'knowledge', 'grounded', 'answers') AS good_before,
           CASE WHEN verdict_after IN ('pending', 'running') THEN NULL
                ELSE verdict_after IN ('generate', 'correct', 'relevant', 'knowledge', 'grounded', 'answers', 'answered')
           END AS good_after
      FROM judged
    UNION ALL
    SELECT batch_id, run_id, 'retry', step, branch, attempt, node, duration_ms, cost_usd,
           lag(status) OVER tries, status, step, coalesce(cost_usd, 0),
           lag(status) OVER tries = 'succeeded', status = 'succeeded'
      FROM public.transitions WHERE status <> 'skipped'
    WINDOW tries AS (PARTITION BY batch_id, run_id, step, branch ORDER BY attempt))
SELECT batch_id,                             -- the batch
       run_id,                               -- the run
       kind,                                 -- rewrite, web_search, regenerate or retry
       step,                                 -- superstep
       branch,                               -- branch of a fan-out
       attempt,                              -- the nth try; of a retry 2 or more
       node,                                 -- the node
       duration_ms,                          -- how long this step took, in milliseconds
       coalesce(cost_usd, 0) AS cost_usd,    -- what this step itself cost in US dollars
       cost_until_verdict_usd,               -- what it and all after it cost, up to the next verdict and with it
       verdict_before,                       -- the last verdict before it; NULL where nothing was judged yet
       verdict_after,                        -- the next verdict, or how the run ended
       good_before IS DISTINCT FROM good_after AND good_before IS NOT NULL AND good_after IS NOT NULL
           AS changed_verdict                -- whether a bad verdict became a good one, or the reverse
  FROM told
 WHERE kind <> 'retry' OR attempt > 1;
