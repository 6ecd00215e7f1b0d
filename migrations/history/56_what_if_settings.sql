-- A batch's own parameters with those of a what-if question laid over them. Raises an exception for a setting about which stored grades say nothing.
CREATE FUNCTION history.what_if_settings(batch_id bigint, settings jsonb)
RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    batch record;
    changed jsonb := settings;
    usable text[];
    unusable text;
BEGIN
    SELECT batches.pipeline, batches.params, batches.provider INTO batch
      FROM history.batches WHERE batches.batch_id = what_if_settings.batch_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'There is no batch %', batch_id USING ERRCODE = 'no_data_found';
    END IF;
    usable := CASE batch.pipeline
              WHEN 'crag' THEN ARRAY['rule', 'ratio', 'upper', 'lower', 'relevant_at', 'refine', 'rewrite', 'web_search']
              WHEN 'self_rag' THEN ARRAY['relevant_at'] WHEN 'adaptive' THEN ARRAY['relevant_at'] END;
    IF usable IS NULL THEN
        RAISE EXCEPTION 'Batch % was answered by %, which grades no documents', batch_id, batch.pipeline
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT string_agg(key, ', ' ORDER BY key) INTO unusable
      FROM jsonb_object_keys(settings) AS key WHERE key <> ALL (usable);
    IF unusable IS NOT NULL THEN
        RAISE EXCEPTION 'Stored grades cannot tell what % would have done', unusable
            USING ERRCODE = 'invalid_parameter_value', HINT = 'They can for: ' || array_to_string(usable, ', ');
    END IF;
    -- what is not set is as it was; a value that the pipeline itself would not take must not pass for another
    SELECT string_agg(key || ' = ' || value, ', ' ORDER BY key) INTO unusable
      FROM jsonb_each(settings)
     WHERE CASE WHEN key = 'rule' THEN jsonb_typeof(value) <> 'string'
                WHEN key IN ('refine', 'rewrite', 'web_search') THEN value NOT IN ('"on"', '"off"')
                WHEN jsonb_typeof(value) <> 'number' THEN true
                ELSE (value #>> '{}')::numeric NOT BETWEEN 0 AND 1 END;
    IF unusable IS NOT NULL THEN
        RAISE EXCEPTION 'This cannot be: %', unusable USING ERRCODE = 'invalid_parameter_value',
            HINT = 'refine, rewrite and web_search are "on" or "off", rule is a text, and the others are numbers from 0 to 1';
    END IF;
    IF changed ? 'relevant_at' AND batch.provider <> 'local' THEN
        RAISE EXCEPTION 'relevant_at draws the line for local models only; the labels of batch % are a model''s own words', batch_id
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF changed ->> 'rule' ~ '^ratio:(0|1|0?[.][0-9]+|1[.]0+)$' THEN
        changed := changed || jsonb_build_object('rule', 'ratio', 'ratio', substr(changed ->> 'rule', 7)::double precision);
    END IF;
    IF changed ->> 'rule' NOT IN ('ratio', 'none_relevant', 'confidence') THEN
        RAISE EXCEPTION 'There is no rule %', changed ->> 'rule' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- as at submission, refining follows the rule unless it is set
    IF changed ? 'rule' AND NOT changed ? 'refine' AND changed ->> 'rule' <> batch.params ->> 'rule' THEN
        changed := changed || jsonb_build_object('refine', CASE changed ->> 'rule' WHEN 'confidence' THEN 'on' ELSE 'off' END);
    END IF;
    changed := batch.params || changed;
    IF (changed ->> 'lower')::double precision > (changed ->> 'upper')::double precision THEN
        RAISE EXCEPTION 'lower (%) must not be above upper (%)', changed ->> 'lower', changed ->> 'upper'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN changed;
END $$;
