-- What is wrong with a job that a person wrote, the first thing found; what the database itself keeps is not asked.
CREATE OR REPLACE FUNCTION pgsched.job_error(j pgsched.jobs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(
        pgsched.bad_text('name', j.name, 200),
        pgsched.not_one_of('kind', j.kind, ARRAY['task', 'command', 'shell', 'sql', 'http']),
        CASE WHEN j.task IS NULL OR btrim(j.task) = '' THEN 'task: must not be empty'
             WHEN length(j.task) > 65536 THEN
                 format('task: %s characters, at most 65536 are allowed', length(j.task)) END,
        CASE WHEN j.kind = 'task' THEN pgsched.bad_text('task', j.task, 200) END,
        CASE WHEN j.kind = 'http' THEN pgsched.http_url_error(j.task) END,
        pgsched.args_error(j.kind, j.args),
        CASE WHEN j.queue IS NOT NULL THEN pgsched.bad_text('queue', j.queue, 100) END,
        CASE WHEN j.priority IS NOT NULL THEN pgsched.out_of_range('priority', j.priority, 0, 9) END,
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
        CASE WHEN j.max_attempts IS NOT NULL THEN pgsched.out_of_range('max_attempts', j.max_attempts, 1, 1000) END,
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
        pgsched.bad_length('paused_by', j.paused_by, 200),
        pgsched.bad_length('paused_reason', j.paused_reason, 10000),
        pgsched.bad_length('description', j.description, 65536),
        pgsched.bad_tags(j.tags),
        pgsched.not_one_of('resume_from', j.resume_from, ARRAY['now', 'pause']),
        CASE WHEN j.concurrency_key IS NOT NULL THEN pgsched.bad_text('concurrency_key', j.concurrency_key, 200) END,
        CASE WHEN j.concurrency_limit IS NOT NULL THEN
            pgsched.out_of_range('concurrency_limit', j.concurrency_limit, 0, 1000000) END
    )
$$;

CREATE OR REPLACE FUNCTION pgsched.jobs_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $$;

-- The high-water mark only rises, whoever writes it: a restored old row or a clock that stepped back must not
-- make a slot fire twice. pgsched.reset_mark alone lowers it, and no further than to now and to the newest slot that has a
-- row.
CREATE OR REPLACE FUNCTION pgsched.jobs_high_water_mark() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(current_setting('pgsched.lowers_mark', true), '') <> 'on' THEN
        NEW.decided_until := OLD.decided_until;
    ELSE
        NEW.decided_until := least(OLD.decided_until,
            greatest(NEW.decided_until, clock_timestamp(), pgsched.newest_slot(NEW.id)));
    END IF;
    RETURN NEW;
END $$;

-- The edit as it may be written; what is wrong with it is raised. Arguments that stay are not judged again: an older release
-- may have taken what is refused now, and such a job can still be paused.
CREATE OR REPLACE FUNCTION pgsched.edit_allowed(was pgsched.jobs, j pgsched.jobs) RETURNS pgsched.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    judged pgsched.jobs;
    problem text;
BEGIN
    IF j.schedule IS NOT NULL AND was.schedule IS NULL AND j.run_at IS NOT DISTINCT FROM was.run_at THEN
        j.run_at := NULL;  -- a job that was to run once gets a schedule; the insert may have filled run_at in
    END IF;
    judged := j;
    IF (j.kind, j.args) IS NOT DISTINCT FROM (was.kind, was.args) THEN
        judged.args := '{}';
    END IF;
    problem := pgsched.job_error(judged);
    IF j.owner IS DISTINCT FROM was.owner THEN
        problem := coalesce(problem, pgsched.bad_owner(j.owner));
    ELSIF (j.kind, j.task, j.args) IS DISTINCT FROM (was.kind, was.task, was.args)
          AND pgsched.bad_owner(was.owner) IS NOT NULL THEN
        j.owner := pgsched.caller();  -- who says what runs, and may not act for the owner, becomes it
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN j;
END $$;
