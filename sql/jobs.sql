-- Jobs and the dates on which they do not run: how people read and change them.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: job_delete
-- delete a job. A trigger cancels its unstarted runs. Running ones go on, and history stays.
-- params: name text
-- returns: (id, name, running: how many of its runs are still running), or no row
-- locks: that job and its unstarted runs
SELECT d.id, %(name)s::text AS name, d.running FROM pgsched.delete_job(%(name)s) d WHERE d.id IS NOT NULL


-- name: job_list
-- return jobs by name, each with the state of its newest run.
-- params: after text (the last name of the previous page; null: the first page), queue text, state text (paused, error,
--         done, shadow or active; null: any), n int (null: all)
-- returns: one row per job; `excluded`: the rows of its calendar (from_date, until_date, reason), null without any
-- locks: none
WITH listed AS (
    SELECT j.*, pgsched.queue_of(j) AS stands_in, pgsched.job_state(j) AS state
    FROM pgsched.jobs j
)
SELECT j.id, j.name, j.kind, j.task, j.stands_in AS queue, j.schedule, j.timezone, j.run_at, j.ends_at, j.anchor_at, j.updated_at,
    j.state, j.mode,
    j.next_run_at, j.run_count, j.error, j.declared_by,
    r.id AS last_run_id, r.state AS last_run_state, r.scheduled_at AS last_run_at,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded,
    clock_timestamp() AS now
FROM listed j LEFT JOIN LATERAL (
    SELECT id, state, scheduled_at FROM pgsched.runs WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1
) r ON true
WHERE (%(after)s::text IS NULL OR j.name > %(after)s) AND (%(queue)s::text IS NULL OR j.stands_in = %(queue)s)
  AND (%(state)s::text IS NULL OR j.state = %(state)s)
ORDER BY j.name LIMIT %(n)s


-- name: job_pause
-- pause a job: no slot is decided. If it is paused already, the time and values that are not given stay.
-- params: name text, reason text, paused_by text (null: the session's user)
-- returns: name, or no row
-- locks: that job
UPDATE pgsched.jobs SET paused = true,
    paused_reason = CASE WHEN paused THEN coalesce(%(reason)s, paused_reason) ELSE %(reason)s END,
    paused_by = CASE WHEN paused THEN coalesce(%(paused_by)s, paused_by) ELSE %(paused_by)s END
WHERE name = %(name)s RETURNING name


-- name: job_recent
-- return the newest runs of a job, by slot.
-- params: job_id bigint, n int
-- returns: one row per run
-- locks: none
SELECT id, state, scheduled_at, started_at, finished_at, attempt, max_attempts, origin, reason, error,
    clock_timestamp() AS now
FROM pgsched.runs WHERE job_id = %(job_id)s ORDER BY scheduled_at DESC LIMIT %(n)s


-- name: job_reset_mark
-- set a high-water mark that lies ahead of the clock back, to now or to the newest slot that has a row.
-- params: name text
-- returns: (before, mark: the mark before and after, now), or no row
-- locks: that job
SELECT j.decided_until AS before, pgsched.reset_mark(j.name) AS mark, clock_timestamp() AS now
FROM pgsched.jobs j WHERE j.name = %(name)s


-- name: job_resume
-- resume a job: its slots are decided again. `now` records what came due during the pause as skipped; `pause` lets the
-- job's catch-up policy decide it.
-- params: name text, resume_from text (now, pause)
-- returns: name, or no row
-- locks: that job
UPDATE pgsched.jobs SET paused = false, resume_from = %(resume_from)s WHERE name = %(name)s RETURNING name


-- name: job_show
-- return one job with all its columns. decided_until is null if nothing was decided yet (-infinity); queue, priority
-- and max_attempts are null if the job's task decides.
-- params: name text
-- returns: one row, or none; `excluded`: the rows of its calendar (from_date, until_date, reason), null without any
-- locks: none
SELECT id, name, description, kind, task, args, queue, priority, tags, schedule, timezone, run_at, starts_at, ends_at,
    max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up, max_catch_up,
    catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max,
    backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs, keep,
    alert_after_failures, max_lateness, max_duration, expect_every, finish_by, mode, calendar, on_excluded, after_match,
    pause_after_failures, ping_url, paused,
    paused_at, paused_by, paused_reason, declared_by, owner, created_at, updated_at, anchor_at,
    nullif(decided_until, '-infinity') AS decided_until, next_run_at, run_count, error, error_at,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded,
    clock_timestamp() AS now
FROM pgsched.jobs j WHERE name = %(name)s


-- name: job_trigger
-- run a job now, beside its schedule.
-- params: name text, args jsonb (null: the job's own), overlap text (allow: even if other runs are open)
-- returns: id of the new run
-- locks: none except the new row; also the job's row if overlap is not allow
SELECT pgsched.trigger(%(name)s, %(args)s::jsonb, %(overlap)s) AS id


-- name: jobs_similar
-- return names that contain a text, for a person who typed a part of one.
-- params: text text, n int
-- returns: (name)
-- locks: none
SELECT name FROM pgsched.jobs
WHERE %(text)s::text <> '' AND position(lower(%(text)s::text) IN lower(name)) > 0
ORDER BY length(name), name LIMIT %(n)s


-- name: jobs_known
-- return those of these jobs that exist.
-- params: names text[], ids bigint[]
-- returns: (id, name)
-- locks: none
SELECT id, name FROM pgsched.jobs WHERE name = ANY (%(names)s::text[]) OR id = ANY (%(ids)s::bigint[])


-- name: calendar_add
-- exclude dates of a job. A range that begins at the same date is replaced.
-- params: name text, from_date date, until_date date, reason text
-- returns: (from_date, until_date, reason), or no row: no such job
-- locks: that row, and the job's row if it is planned again
INSERT INTO pgsched.job_calendars AS c (job_id, from_date, until_date, reason)
SELECT id, %(from_date)s::date, %(until_date)s::date, %(reason)s FROM pgsched.jobs WHERE name = %(name)s
ON CONFLICT (job_id, from_date) DO UPDATE SET until_date = excluded.until_date, reason = excluded.reason
RETURNING c.from_date, c.until_date, c.reason


-- name: calendar_list
-- return the excluded dates of a job.
-- params: name text
-- returns: (from_date, until_date, reason) by date; both dates are excluded
-- locks: none
SELECT c.from_date, c.until_date, c.reason FROM pgsched.job_calendars c JOIN pgsched.jobs j ON j.id = c.job_id
WHERE j.name = %(name)s ORDER BY c.from_date


-- name: calendar_remove
-- allow dates of a job again. If a range reaches beyond them, its rest stays excluded.
-- params: name text, from_date date, until_date date
-- returns: (from_date, until_date, reason) of the ranges that were cut or removed, as they were before
-- locks: those rows, and the job's row if it is planned again
SELECT from_date, until_date, reason FROM pgsched.include_dates(%(name)s, %(from_date)s, %(until_date)s)
