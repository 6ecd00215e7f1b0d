-- What people, and the system itself, did to a batch or a run.
CREATE VIEW history.events AS
SELECT id AS event_id,                       -- the event's number
       batch_id,                             -- the batch
       run_id,                               -- the run; NULL where the whole batch is meant
       at,                                   -- when
       actor,                                -- who: a name, or system
       action,                               -- submitted, paused, resumed, cancelled, retried, reprioritised, forked, ended, ...
       reason,                               -- why, in words
       detail                                -- JSON object: what exactly
  FROM public.events;
