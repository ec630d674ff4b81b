-- May a run of this task have this key? The keys task:NAME and task:NAME:... are for the runs of that task. No search_path
-- is set, because it is to be inlined; see pgsched.runs_before_insert.
CREATE FUNCTION pgsched.is_own_key(concurrency_key text, task text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT concurrency_key IS NULL OR concurrency_key !~ '^task(:|$)'
        OR pg_catalog.starts_with(concurrency_key || ':', 'task:' || task || ':')
$$;

-- What nobody may write into a new run but the leader: its markers (43_dependencies.sql). A client that makes a run
-- together with what it waits for may let it be born as one whose edges are new.
CREATE OR REPLACE FUNCTION pgsched.run_marker_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN r.available_at >= '8998-01-01 00:00Z'
            AND (r.state = 'waiting' AND r.ready_at IS NULL AND r.available_at = '8999-01-01 00:00Z' AND r.job_id IS NULL
                 OR pgsched.may_lead()) IS NOT TRUE THEN
            format('available_at: %s is not an instant between 1970 and 8997', r.available_at)
        WHEN r.job_id IS NULL AND r.concurrency_key ~ '^job(:|$)' THEN
            'concurrency_key: job:... is the limit of a job: its runs alone have it'
        WHEN r.job_id IS NULL AND NOT pgsched.is_own_key(r.concurrency_key, r.task) THEN
            'concurrency_key: task:... is the limit of a task: its runs alone have it'
    END
$$;

CREATE OR REPLACE FUNCTION pgsched.run_error(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgsched.not_one_of('kind', r.kind, ARRAY['task', 'command', 'shell', 'sql', 'http']),
        CASE WHEN btrim(r.task) = '' THEN 'task: must not be empty'
             WHEN length(r.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(r.task)) END,
        CASE WHEN r.kind = 'http' THEN pgsched.http_url_error(r.task) END,
        pgsched.args_error(r.kind, r.args),
        pgsched.bad_text('queue', r.queue, 100),
        pgsched.not_one_of('origin', r.origin, ARRAY['schedule', 'manual', 'backfill', 'enqueue']),
        pgsched.out_of_range('priority', r.priority, 0, 9),
        pgsched.out_of_range('max_attempts', r.max_attempts, 1, 1000),
        pgsched.bad_instant('available_at', r.available_at),
        pgsched.bad_instant('scheduled_at', r.scheduled_at),
        pgsched.bad_instant('expires_at', r.expires_at),
        pgsched.bad_interval('timeout', r.timeout, '1 millisecond'),
        pgsched.bad_interval('kill_after', r.kill_after, '0'),
        pgsched.bad_interval('keep', r.keep, '0'),
        CASE WHEN r.backoff IS NOT NULL THEN
            pgsched.not_one_of('backoff', r.backoff, ARRAY['exponential', 'fixed', 'linear']) END,
        pgsched.bad_interval('backoff_base', r.backoff_base, '0'),
        pgsched.bad_interval('backoff_max', r.backoff_max, '0'),
        CASE WHEN r.backoff_jitter IS NOT NULL THEN
            pgsched.out_of_range('backoff_jitter', r.backoff_jitter::numeric, 0, 1) END,
        CASE WHEN r.concurrency_key IS NOT NULL THEN pgsched.bad_text('concurrency_key', r.concurrency_key, 500) END)
$$;
