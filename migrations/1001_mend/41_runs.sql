-- May the caller make rows that only the leader, or the owner of the tables, has a reason to make?
CREATE FUNCTION pgsched.may_lead() RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'pgsched.runs'::regclass), 'USAGE')
        OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'pgsched_leader' AND pg_has_role(r.oid, 'USAGE'))
$$;

-- Not before when a run that waits for others may start; null where it does not say, or not as JSON writes an instant.
-- Never fails: the leader reads it of many runs at once, with settings of its own.
CREATE FUNCTION pgsched.not_before_of(options jsonb) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' AS $$
BEGIN
    IF options ->> 'not_before' ~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:\d\d(:\d\d)?)?)$' THEN
        RETURN (options ->> 'not_before')::timestamptz;
    END IF;
    RETURN NULL;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- The jobs whose slots a slot waits for: none where what is written there are no numbers of jobs. Never fails, as above.
-- No search_path is set, because it is to be inlined; see pgsched.runs_before_insert.
CREATE FUNCTION pgsched.after_jobs_of(options jsonb) RETURNS SETOF bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN a.item ~ '^[0-9]{1,18}$' THEN a.item::bigint END
    FROM pg_catalog.jsonb_array_elements_text(CASE pg_catalog.jsonb_typeof(options -> 'after_jobs')
        WHEN 'array' THEN options -> 'after_jobs' ELSE '[]'::jsonb END) a(item)
    WHERE a.item ~ '^[0-9]{1,18}$'
$$;

-- What is wrong with one of the lists of exit codes that a run of a program carries.
CREATE FUNCTION pgsched.run_codes_error(field text, codes jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN codes IS NULL OR codes = 'null' THEN NULL
        WHEN jsonb_typeof(codes) <> 'array' OR codes = '[]' THEN
            format('options.%s: expected an array of exit codes', field)
        ELSE (SELECT format('options.%s: %s is no exit code 0-255', field, left(c.code::text, 60))
              FROM jsonb_array_elements(codes) c(code)
              WHERE CASE WHEN jsonb_typeof(c.code) <> 'number' THEN true
                    ELSE c.code::text !~ '^\d{1,3}$' OR c.code::text::integer > 255 END LIMIT 1)
    END
$$;

-- What is wrong with the options of a new run. Only the leader knows what a slot waits for (after_jobs), and whether an
-- overlap policy holds it; when a run that waits for others may start is said together with its marker.
CREATE FUNCTION pgsched.run_options_error(kind text, options jsonb, marked boolean) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN options IS NULL THEN NULL
        WHEN jsonb_typeof(options) <> 'object' THEN
            format('options: must be a JSON object, not a %s', jsonb_typeof(options))
        WHEN jsonb_path_exists(options, 'strict $.**{201}') THEN 'options: nested more than 200 deep'
        WHEN options ?| '{after_jobs,overlap}' AND NOT pgsched.may_lead() THEN
            'options: after_jobs and overlap are set by pgsched itself'
        WHEN options ? 'after_jobs' AND (jsonb_typeof(options -> 'after_jobs') <> 'array' OR jsonb_array_length(
                CASE jsonb_typeof(options -> 'after_jobs') WHEN 'array' THEN options -> 'after_jobs' ELSE '[]' END)
                <> (SELECT count(*) FROM pgsched.after_jobs_of(options))) THEN
            'options: after_jobs is no array of the numbers of jobs'
        WHEN options ? 'not_before' AND NOT marked AND NOT pgsched.may_lead() THEN
            'options: not_before is set by pgsched itself'
        WHEN options ? 'not_before' AND coalesce(pgsched.not_before_of(options) NOT BETWEEN '1970-01-01 00:00Z'
                                                 AND '8998-01-01 00:00Z', true) THEN
            'options: not_before is no instant as in "2026-05-01T12:00:00+00:00", between 1970 and 8997'
        WHEN kind IN ('command', 'shell') THEN coalesce(
            pgsched.run_codes_error('success_codes', options -> 'success_codes'),
            pgsched.run_codes_error('retry_codes', options -> 'retry_codes'),
            pgsched.run_codes_error('dead_codes', options -> 'dead_codes'))
    END
$$;

-- What nobody may write into a new run but the leader: its markers (43_dependencies.sql). A client that makes a run
-- together with what it waits for may let it be born as one whose edges are new.
CREATE FUNCTION pgsched.run_marker_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN r.available_at >= '8998-01-01 00:00Z'
            AND (r.state = 'waiting' AND r.ready_at IS NULL AND r.available_at = '8999-01-01 00:00Z' AND r.job_id IS NULL
                 OR pgsched.may_lead()) IS NOT TRUE THEN
            format('available_at: %s is not an instant between 1970 and 8997', r.available_at)
        WHEN r.job_id IS NULL AND r.concurrency_key ~ '^job(:|$)' THEN
            'concurrency_key: job:... is the limit of a job: its runs alone have it'
    END
$$;

DROP FUNCTION pgsched.held_options_error(jsonb);

-- How much a row may hold of what few runs have. Asked when it is written: by a trigger at UPDATE, and in
-- runs_before_insert. Measured as text: an AFTER trigger sees the stored row, whose values may be compressed, and before
-- PostgreSQL 18 pg_column_size would measure that.
CREATE OR REPLACE FUNCTION pgsched.run_size_error(
    unique_key text, tags text[], options jsonb, progress jsonb, cancel_reason text)
RETURNS text LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s: %s bytes, at most %s are allowed', name, size, most) FROM (VALUES
        ('unique_key', octet_length(unique_key), 4000), ('tags', octet_length(array_to_json(tags)::text), 65536),
        ('options', octet_length(options::text), 65536), ('progress', octet_length(progress::text), 65536),
        ('cancel_reason', octet_length(cancel_reason), 65536)) AS v(name, size, most)
    WHERE size > most LIMIT 1
$$;
