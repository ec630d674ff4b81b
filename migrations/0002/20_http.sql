-- HTTP jobs and runs: a wrong URL or argument is refused at INSERT or UPDATE, with the words that the executor uses
-- (pgsched/execute/http_request.py).

CREATE FUNCTION pgsched.http_url_error(url text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    authority text := substring(url FROM '(?i)^https?://([^/?#]*)');
    port text := substring(authority FROM ':([0-9]{1,5})$');
BEGIN
    RETURN CASE
        WHEN length(url) > 8192 THEN
            format('task: %s characters, at most 8192 are allowed in a URL', length(url))
        WHEN url ~ '[\x01-\x20\x7f]' THEN 'task: a URL must not contain spaces or control characters'
        WHEN authority IS NULL THEN 'task: a URL must begin with http:// or https://'
        WHEN strpos(authority, '@') > 0 THEN
            'task: a URL must not contain a user name or password; args.headers may hold Authorization'
        WHEN authority !~ '^(\[[0-9A-Fa-f:.]+\]|[^]:\\%<>"''`{|}^[]+)(:[0-9]{1,5})?$' THEN
            'task: the URL has no valid host'
        WHEN port::integer NOT BETWEEN 1 AND 65535 THEN format('task: port %s is out of range 1-65535', port)
    END;
END $$;

CREATE FUNCTION pgsched.http_header_error(name text, value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN name !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,100}$' THEN
            format('args.headers: %s is not the name of a header', to_json(left(name, 60)))
        WHEN lower(name) IN ('accept-encoding', 'connection', 'content-length', 'expect', 'host', 'idempotency-key',
                             'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade')
             OR lower(name) ~ '^(x-pgsched-|proxy-)' THEN format('args.headers: %s is set by pgsched itself', name)
        WHEN jsonb_typeof(value) <> 'string' THEN format('args.headers.%s: expected text', name)
        WHEN length(value #>> '{}') > 8192 THEN
            format('args.headers.%s: %s characters, at most 8192 are allowed', name, length(value #>> '{}'))
        WHEN value #>> '{}' !~ '^[\x20-\x7e]*$' OR value #>> '{}' <> btrim(value #>> '{}') THEN
            format('args.headers.%s: must be printable ASCII and not begin or end with a space', name)
    END
$$;

-- What is wrong with the value of one key, as the end of a sentence that begins with "args." and the key.
CREATE FUNCTION pgsched.http_value_error(key text, value jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    kind text := jsonb_typeof(value);
    most integer := CASE key WHEN 'connect_timeout_s' THEN 600 WHEN 'read_timeout_s' THEN 86400 END;
    plain text := value #>> '{}';
BEGIN
    IF key = 'method' AND (kind <> 'string' OR plain !~ '^[A-Za-z]{1,20}$' OR upper(plain) IN ('CONNECT', 'TRACE')) THEN
        RETURN ': expected a method such as POST';
    ELSIF key = 'headers' AND kind <> 'object' THEN
        RETURN ': expected an object of text';
    ELSIF key = 'params' AND kind <> 'object' THEN
        RETURN ': expected an object';
    ELSIF key = 'params' THEN
        RETURN (SELECT format('.%s: expected text, a number, true or false, or an array of these', p.name)
                FROM jsonb_each(value) p(name, item), jsonb_array_elements(
                    CASE jsonb_typeof(item) WHEN 'array' THEN item ELSE jsonb_build_array(item) END) one
                WHERE jsonb_typeof(one) NOT IN ('string', 'number', 'boolean') LIMIT 1);
    ELSIF key = 'body' AND kind <> 'string' THEN
        RETURN ': expected text';
    ELSIF key = 'expect' AND (kind <> 'array' OR value = '[]') THEN
        RETURN ': expected an array of statuses';
    ELSIF key = 'expect' THEN
        RETURN (SELECT format(': %s is neither a status 200-599 nor a class such as "2xx"', left(e.item::text, 60))
                FROM jsonb_array_elements(value) e(item)
                WHERE NOT (jsonb_typeof(item) = 'number' AND item::text ~ '^[2-5][0-9][0-9]$'
                           OR jsonb_typeof(item) = 'string' AND item #>> '{}' ~ '^[2-5]xx$') LIMIT 1);
    ELSIF key = 'follow_redirects' AND kind <> 'boolean' THEN
        RETURN ': expected true or false';
    ELSIF most IS NOT NULL THEN
        IF kind <> 'number' OR plain::numeric NOT BETWEEN 0.001 AND most THEN
            RETURN format(': expected a number of seconds, 0.001-%s', most);
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.http_args_error(args jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    known text[] := ARRAY['method', 'headers', 'params', 'json', 'body', 'expect', 'connect_timeout_s',
                          'read_timeout_s', 'follow_redirects'];
    found record;
    problem text;
BEGIN
    IF args = '[]' THEN
        RETURN NULL;
    ELSIF jsonb_typeof(args) <> 'object' THEN
        RETURN 'args: a http job takes a JSON object';
    END IF;
    FOR found IN SELECT * FROM jsonb_each(args) LOOP
        IF found.key <> ALL (known) THEN
            RETURN format('args.%s: no such key; known are %s', left(found.key, 60), array_to_string(known, ', '));
        END IF;
        problem := pgsched.http_value_error(found.key, found.value);
        IF problem IS NOT NULL THEN
            RETURN 'args.' || found.key || problem;
        END IF;
    END LOOP;
    IF args ? 'headers' THEN
        SELECT e INTO problem FROM jsonb_each(args -> 'headers') h, pgsched.http_header_error(h.key, h.value) e
        WHERE e IS NOT NULL LIMIT 1;
    END IF;
    RETURN coalesce(problem, CASE WHEN args ?& '{json,body}' THEN 'args.body: not together with json' END);
END $$;

CREATE OR REPLACE FUNCTION pgsched.args_error(kind text, args jsonb) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN args IS NULL THEN 'args: must not be null'
        WHEN jsonb_typeof(args) NOT IN ('object', 'array') THEN
            format('args: must be a JSON object or array, not a %s', jsonb_typeof(args))
        WHEN kind IN ('shell', 'http') AND jsonb_typeof(args) = 'array' AND args <> '[]' THEN
            format('args: a %s job takes a JSON object', kind)
        WHEN pg_column_size(args) > 1048576 THEN
            format('args: %s bytes, at most 1048576 are allowed', pg_column_size(args))
        WHEN kind = 'http' THEN pgsched.http_args_error(args)
    END
$$;

CREATE OR REPLACE FUNCTION pgsched.job_error(j pgsched.jobs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgsched.bad_text('name', j.name, 200),
        pgsched.not_one_of('kind', j.kind, ARRAY['python', 'command', 'shell', 'sql', 'http']),
        CASE WHEN j.task IS NULL OR btrim(j.task) = '' THEN 'task: must not be empty'
             WHEN length(j.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(j.task)) END,
        CASE WHEN j.kind = 'python' THEN pgsched.bad_text('task', j.task, 200) END,
        CASE WHEN j.kind = 'http' THEN pgsched.http_url_error(j.task) END,
        pgsched.args_error(j.kind, j.args),
        pgsched.bad_text('queue', j.queue, 100),
        pgsched.out_of_range('priority', j.priority, 0, 9),
        pgsched.timezone_error(j.timezone),
        pgsched.schedule_error(j.schedule),
        CASE WHEN j.schedule IS NOT NULL AND j.run_at IS NOT NULL THEN
            'run_at: a job has either a schedule or run_at, not both' END,
        pgsched.bad_instant('run_at', j.run_at),
        pgsched.bad_instant('starts_at', j.starts_at),
        pgsched.bad_instant('ends_at', j.ends_at),
        CASE WHEN j.ends_at <= j.starts_at THEN 'ends_at: must be later than starts_at' END,
        CASE WHEN j.schedule IS NULL AND (coalesce(j.run_at, now()) < j.starts_at
                                          OR coalesce(j.run_at, now()) > j.ends_at) THEN
            'run_at: must lie between starts_at and ends_at' END,
        CASE WHEN j.max_runs < 1 THEN format('max_runs: %s is less than 1', j.max_runs) END,
        pgsched.bad_period('jitter', j.jitter),
        pgsched.not_one_of('overlap', j.overlap,
            ARRAY['allow', 'skip', 'buffer_one', 'buffer_all', 'replace', 'terminate']),
        pgsched.out_of_range('max_buffer', j.max_buffer, 1, 100000),
        pgsched.bad_interval('retry_within', j.retry_within, '0'),
        CASE WHEN j.retry_within IS NOT NULL AND j.overlap <> 'skip' THEN
            format('retry_within: is for overlap "skip" alone, not "%s"', j.overlap) END,
        pgsched.bad_period('misfire_after', j.misfire_after),
        pgsched.not_one_of('catch_up', j.catch_up, ARRAY['latest', 'skip', 'earliest', 'all']),
        pgsched.out_of_range('max_catch_up', j.max_catch_up, 1, 10000),
        pgsched.bad_period('catch_up_window', j.catch_up_window),
        pgsched.bad_interval('start_deadline', j.start_deadline, '1 second'),
        CASE WHEN j.start_deadline <= j.jitter THEN 'start_deadline: must be longer than jitter' END,
        pgsched.out_of_range('max_attempts', j.max_attempts, 1, 1000),
        pgsched.bad_interval('timeout', j.timeout, '1 millisecond'),
        pgsched.bad_period('kill_after', j.kill_after),
        pgsched.not_one_of('backoff', j.backoff, ARRAY['exponential', 'fixed', 'linear']),
        pgsched.bad_period('backoff_base', j.backoff_base),
        pgsched.bad_period('backoff_max', j.backoff_max),
        pgsched.out_of_range('backoff_jitter', j.backoff_jitter::numeric, 0, 1),
        CASE WHEN j.success_codes IS NULL THEN 'success_codes: must not be null' END,
        pgsched.bad_codes('success_codes', j.success_codes),
        pgsched.bad_codes('retry_codes', j.retry_codes),
        pgsched.bad_codes('dead_codes', j.dead_codes),
        CASE WHEN j.delete_after_run IS NULL THEN 'delete_after_run: must not be null' END,
        CASE WHEN j.delete_after_run AND j.schedule IS NOT NULL THEN
            'delete_after_run: is for jobs that run once; this one has a schedule' END,
        CASE WHEN j.paused IS NULL THEN 'paused: must not be null' END,
        pgsched.not_one_of('resume_from', j.resume_from, ARRAY['now', 'pause']),
        -- columns that later releases give a meaning to: refused rather than silently ignored
        CASE WHEN j.concurrency_key IS NOT NULL OR j.concurrency_limit IS NOT NULL THEN
            'concurrency_limit: is not supported by this release' END,
        CASE WHEN j.after_jobs IS NOT NULL THEN 'after_jobs: is not supported by this release' END
    )
$$;
