-- Jobs, the dates on which they do not run, and the calendars that they share: how people read and change them.
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
-- returns: one row per job; `excluded`: its own dates (from_date, until_date, reason), null without any
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
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded, j.calendar, j.on_excluded, j.shifts,
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


-- name: job_monitored
-- return what a monitor of a job outside has to know, with the defaults of alerts.
-- params: id bigint
-- returns: (name, schedule, timezone, has_gaps_or_end: it has no runs at some slots, or will end, alert_after_failures,
--          max_lateness_s, max_duration_s: of an attempt, or until a slot has succeeded), or no row
-- locks: none
SELECT j.name, j.schedule, j.timezone,
    j.calendar IS NOT NULL OR j.ends_at IS NOT NULL OR j.max_runs IS NOT NULL
        OR EXISTS (SELECT FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS has_gaps_or_end,
    nullif(coalesce(j.alert_after_failures, d.alert_after_failures), 0) AS alert_after_failures,
    extract(epoch FROM nullif(coalesce(j.max_lateness, d.max_lateness), '0'))::float8 AS max_lateness_s,
    extract(epoch FROM coalesce(nullif(coalesce(j.max_duration, d.max_duration), '0'), j.timeout,
                                nullif(coalesce(j.finish_by, d.finish_by), '0')))::float8 AS max_duration_s
FROM pgsched.jobs j LEFT JOIN pgsched.alert_defaults d ON true
WHERE j.id = %(id)s


-- name: job_show
-- return one job with all its columns. decided_until is null if nothing was decided yet (-infinity); queue, priority
-- and max_attempts are null if the job's task decides.
-- params: name text
-- returns: one row, or none; `excluded`: its own dates (from_date, until_date, reason), null without any
-- locks: none
SELECT id, name, description, kind, task, args, queue, priority, tags, schedule, timezone, run_at, starts_at, ends_at,
    max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up, max_catch_up,
    catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max,
    backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs, keep,
    alert_after_failures, max_lateness, max_duration, expect_every, finish_by, mode, calendar, on_excluded, after_match,
    pause_after_failures, ping_url, alert_to, resumed_at, shifts, paused,
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


-- name: calendars_times
-- return the times of calendars, as the program takes them (pgsched/core/schedule/calendar.py).
-- params: names text[], versions text[]: parallel to them, the versions that the caller has (null: none)
-- returns: (name, version, times: null if the caller has this version) of the calendars that exist
-- locks: none
SELECT c.name, c.version::text AS version, CASE WHEN c.version IS DISTINCT FROM s.version::uuid THEN coalesce((
        SELECT json_agg(json_build_array(t.calendar, t.from_date, t.until_date, t.weekdays, t.from_time, t.until_time, t.reason)
                        ORDER BY t.id)
        FROM pgsched.calendar_times t WHERE t.calendar = c.name), '[]') END AS times
FROM unnest(%(names)s::text[], %(versions)s::text[]) AS s(name, version) JOIN pgsched.calendars c USING (name)


-- name: calendars_list
-- return calendars by name.
-- params: name text (null: all), n int
-- returns: (name, description, owner, created_at, times: how many, first_date, last_date: of its dates, jobs: how many
--          use it, of those that the caller may see)
-- locks: none
SELECT c.name, c.description, c.owner, c.created_at, t.times, t.first_date, t.last_date,
    (SELECT count(*) FROM pgsched.jobs j WHERE j.calendar = c.name) AS jobs
FROM pgsched.calendars c CROSS JOIN LATERAL (
    SELECT count(*) AS times, min(o.from_date) AS first_date, max(o.until_date) AS last_date
    FROM pgsched.calendar_times o WHERE o.calendar = c.name) t
WHERE %(name)s::text IS NULL OR c.name = %(name)s ORDER BY c.name LIMIT %(n)s


-- name: calendars_rows
-- return the times of a calendar: whole days by date, then the others.
-- params: name text
-- returns: (id, from_date, until_date, weekdays, from_time, until_time: as texts, reason)
-- locks: none
SELECT id, from_date, until_date, weekdays, from_time::text, until_time::text, reason FROM pgsched.calendar_times
WHERE calendar = %(name)s ORDER BY from_date, until_date, id


-- name: calendars_users
-- return jobs that use a calendar.
-- params: name text, n int
-- returns: (name, on_excluded) by name
-- locks: none
SELECT name, on_excluded FROM pgsched.jobs WHERE calendar = %(name)s ORDER BY name LIMIT %(n)s


-- name: calendars_make
-- make a calendar, unless there is one of that name.
-- params: name text, description text
-- returns: name, or no row: it exists
-- locks: none except the new row
INSERT INTO pgsched.calendars (name, description) VALUES (%(name)s, %(description)s)
ON CONFLICT (name) DO NOTHING RETURNING name


-- name: calendars_describe
-- change the description of a calendar.
-- params: name text, description text
-- returns: name, or no row: there is none, or it is another owner's
-- locks: that calendar
UPDATE pgsched.calendars SET description = %(description)s WHERE name = %(name)s RETURNING name


-- name: calendars_add
-- add times to a calendar, those that it has already left out.
-- params: name text; parallel arrays from_dates date[], until_dates date[], weekdays text[] (each an array literal),
--         from_times time[], until_times time[], reasons text[]
-- returns: how many were added: n
-- locks: the calendar, until the transaction ends
WITH added AS (
    INSERT INTO pgsched.calendar_times (calendar, from_date, until_date, weekdays, from_time, until_time, reason)
    SELECT %(name)s, s.from_date, s.until_date, s.weekdays::integer[], s.from_time, s.until_time, s.reason
    FROM unnest(%(from_dates)s::date[], %(until_dates)s::date[], %(weekdays)s::text[], %(from_times)s::time[],
                %(until_times)s::time[], %(reasons)s::text[])
        WITH ORDINALITY AS s(from_date, until_date, weekdays, from_time, until_time, reason, n)
    WHERE NOT EXISTS (
        SELECT FROM pgsched.calendar_times t
        WHERE t.calendar = %(name)s AND (t.from_date, t.until_date, t.weekdays, t.from_time, t.until_time, t.reason)
            IS NOT DISTINCT FROM (s.from_date, s.until_date, s.weekdays::integer[], s.from_time, s.until_time, s.reason))
    ORDER BY s.n RETURNING id
)
SELECT count(*) AS n FROM added


-- name: calendars_remove
-- remove times of a calendar.
-- params: name text, ids bigint[]
-- returns: n: how many; null: the caller has no such calendar
-- locks: those times, and the calendar, until the transaction ends
SELECT pgsched.remove_calendar_times(%(name)s, %(ids)s::bigint[]) AS n


-- name: calendars_delete
-- delete a calendar with its times.
-- params: name text
-- returns: name; null: the caller has no such calendar
-- locks: that calendar
SELECT pgsched.delete_calendar(%(name)s) AS name


-- name: calendars_changed
-- return the calendars whose jobs are to be planned again.
-- params: n int
-- returns: (name, version)
-- locks: none
SELECT name, version::text AS version FROM pgsched.calendars WHERE replan ORDER BY name LIMIT %(n)s


-- name: calendars_replan
-- let the next jobs of a calendar be planned again whose next slot may lie elsewhere by now: those whose slots it shifts,
-- and those of @after, which it puts off. With them jobs without further slots that may get one (pgsched.may_go_on).
-- params: name text, after bigint (id), n int, ids bigint[] as text (these jobs only; null: all behind `after`)
-- returns: (id, again: it will be planned again; false: another transaction has locked it) in the order of id
-- locks: those jobs, skipping locked ones
WITH page AS MATERIALIZED (
    SELECT j.id FROM pgsched.jobs j
    WHERE j.calendar = %(name)s AND j.id > %(after)s AND (%(ids)s::text IS NULL OR j.id = ANY (%(ids)s::text::bigint[]))
        AND (j.next_run_at > clock_timestamp() OR pgsched.may_go_on(j))
        AND (j.on_excluded <> 'skip' OR j.shifts IS NOT NULL OR j.schedule ~* '@after')
    ORDER BY j.id LIMIT %(n)s
), free AS MATERIALIZED (
    SELECT j.id FROM pgsched.jobs j WHERE j.id IN (SELECT id FROM page) FOR NO KEY UPDATE OF j SKIP LOCKED
), planned AS (
    UPDATE pgsched.jobs j SET next_run_at = clock_timestamp() FROM free WHERE j.id = free.id RETURNING j.id
)
SELECT p.id, planned.id IS NOT NULL AS again FROM page p LEFT JOIN planned ON planned.id = p.id ORDER BY p.id


-- name: calendars_replanned
-- note that the jobs of a calendar are planned again, unless its times have changed meanwhile.
-- params: name text, version text (as it was read)
-- returns: nothing
-- locks: that calendar, unless it is locked
UPDATE pgsched.calendars c SET replan = false WHERE c.name = (
    SELECT o.name FROM pgsched.calendars o WHERE o.name = %(name)s AND o.version = %(version)s::uuid
    FOR NO KEY UPDATE SKIP LOCKED)
