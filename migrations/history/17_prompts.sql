-- Each prompt text that was ever used, by role and version.
CREATE VIEW history.prompts AS
SELECT role,                                 -- the part the model plays with it
       version,                              -- first 12 hex digits of the text's SHA-256
       text,                                 -- the text
       first_seen_at                         -- when a batch used it for the first time
  FROM public.prompts;
