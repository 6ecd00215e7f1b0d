-- What crag's node `decide` made of the grades of a run; the last one where a run was retried.
CREATE VIEW history.decisions AS
SELECT DISTINCT ON (transitions.run_id)
       transitions.batch_id,                 -- the batch
       transitions.run_id,                   -- the run
       transitions.step,                     -- superstep of the decision
       decision ->> 'rule' AS rule,          -- ratio, none_relevant or confidence
       decision ->> 'action' AS action,      -- generate or search; correct, incorrect or ambiguous by confidence
       (decision ->> 'retrieved')::int AS retrieved,   -- documents that had a grade
       (decision ->> 'relevant')::int AS relevant,     -- of these, relevant ones
       (decision ->> 'unparsed')::int AS unparsed,     -- of these, verdicts that were neither yes nor no
       (decision ->> 'best_score')::double precision AS best_score,  -- the best score; NULL where none has one
       decision ->> 'why' AS why,            -- the rule and its numbers in words
       jsonb_array_length(transitions.state_update -> 'knowledge') AS kept  -- documents kept to answer from
  FROM public.transitions
 CROSS JOIN LATERAL (SELECT transitions.state_update -> 'decision' AS decision) AS decided
 WHERE transitions.status = 'succeeded' AND transitions.node = 'decide' AND decision IS NOT NULL
 ORDER BY transitions.run_id, transitions.step DESC, transitions.attempt DESC;
