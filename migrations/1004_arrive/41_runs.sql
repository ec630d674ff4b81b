-- What a run has of its job beside its columns: its exit codes, and where its start and its end are reported.
CREATE OR REPLACE FUNCTION pgsched.job_options(j pgsched.jobs) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN j.kind IN ('command', 'shell') AND
             (j.success_codes <> '{0}' OR j.retry_codes IS NOT NULL OR j.dead_codes IS NOT NULL)
        THEN jsonb_build_object('success_codes', j.success_codes, 'retry_codes', j.retry_codes,
                                'dead_codes', j.dead_codes)
             || CASE WHEN j.ping_url IS NULL THEN '{}' ELSE jsonb_build_object('ping_url', j.ping_url) END
        WHEN j.ping_url IS NOT NULL THEN jsonb_build_object('ping_url', j.ping_url) END
$$;

CREATE OR REPLACE FUNCTION pgsched.run_options_error(kind text, options jsonb, marked boolean) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN options IS NULL THEN NULL
        WHEN jsonb_typeof(options) <> 'object' THEN
            format('options: must be a JSON object, not a %s', jsonb_typeof(options))
        WHEN jsonb_path_exists(options, 'strict $.**{201}') THEN 'options: nested more than 200 deep'
        WHEN options ?| '{after_jobs,overlap}' AND NOT pgsched.may_lead() THEN
            'options: after_jobs and overlap are set by pgsched itself'
        WHEN options ?| '{after_match,ping_url}' AND NOT pgsched.may_lead() THEN
            'options: after_match and ping_url are set by pgsched itself'
        WHEN options ? 'after_jobs' AND (jsonb_typeof(options -> 'after_jobs') <> 'array' OR jsonb_array_length(
                CASE jsonb_typeof(options -> 'after_jobs') WHEN 'array' THEN options -> 'after_jobs' ELSE '[]' END)
                <> (SELECT count(*) FROM pgsched.after_jobs_of(options))) THEN
            'options: after_jobs is no array of the numbers of jobs'
        WHEN options ? 'after_match' AND coalesce(options ->> 'after_match' NOT IN ('latest', 'since_last'), true) THEN
            'options: after_match is neither latest nor since_last'
        WHEN options ? 'ping_url' AND (jsonb_typeof(options -> 'ping_url') <> 'string'
                                       OR pgsched.http_url_error(options ->> 'ping_url') IS NOT NULL) THEN
            'options: ping_url is no URL'
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
