-- Statements of the test kit. For tests only.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: runs_ended_since
-- count the Python runs that have ended since a time, by state.
-- params: since timestamptz, queues text[] (null: every queue)
-- returns: (state text, n bigint)
-- locks: none
SELECT state, count(*) FROM pgsched.runs
WHERE phase >= 3 /* ended */ AND finished_at >= %(since)s AND kind = 'task'
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
GROUP BY state ORDER BY state


-- name: runs_hurry
-- make runs that are due later due now.
-- params: tasks text[], queues text[] (null: every queue)
-- returns: nothing
-- locks: those runs
UPDATE pgsched.runs SET available_at = clock_timestamp()
WHERE phase = 1 /* scheduled */ AND available_at > clock_timestamp() AND kind = 'task'
    AND task = ANY (%(tasks)s::text[])
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))


-- name: jobs_of_clock
-- return the jobs that have slots which a travelling clock may pass.
-- params: none
-- returns: (name, schedule, timezone, anchor_at, calendar, on_excluded, shifts, excluded: its own dates, null without any),
--          by name
-- locks: none
SELECT j.name, j.schedule, j.timezone, j.anchor_at, j.calendar, j.on_excluded, j.shifts,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded
FROM pgsched.jobs j WHERE j.schedule IS NOT NULL AND NOT j.paused AND j.mode = 'run' ORDER BY j.name


-- name: runs_open_of_tasks
-- return the runs that a drain still waits for: runs of these tasks that are due, or all that have not finished;
-- without runs that wait for such an unfinished run.
-- params: tasks text[], queues text[] (null: every queue), scheduled boolean (also runs that are due later)
-- returns: (id bigint, task text, state text) of each, oldest first
-- locks: none
SELECT id, task, state FROM pgsched.runs
WHERE phase < 3 /* open */ AND kind = 'task' AND task = ANY (%(tasks)s::text[])
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
    AND (phase <> 1 /* scheduled */ OR %(scheduled)s::boolean OR available_at <= clock_timestamp())
    -- those that it waits for count themselves; it does once they have ended, and the leader is to tell it
    AND (available_at < '9000-01-01 00:00Z' OR EXISTS (
        SELECT FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id
        WHERE d.run_id = runs.id AND d.state = 'open' AND p.phase >= 3 /* ended */ AND p.has_children)
        OR NOT EXISTS (SELECT FROM pgsched.dependencies d WHERE d.run_id = runs.id AND d.state = 'open'))
ORDER BY id LIMIT 20


-- name: runs_unfinished_of_task
-- return the unfinished runs of a task, or of all Python tasks, in the order in which they were made.
-- params: task text; null: all
-- returns: one row per run
-- locks: none
SELECT id, task, args, queue, priority, available_at, tags, unique_key, idempotency_key,
    concurrency_key, state, result, error, reason, attempt,
    max_attempts, scheduled_at, expires_at, keep, kill_after, backoff, backoff_base, backoff_max, backoff_jitter
FROM pgsched.runs WHERE phase < 3 /* open */ AND kind = 'task' AND (%(task)s::text IS NULL OR task = %(task)s::text)
ORDER BY id


-- name: slot_travelled
-- make a run of a job for a slot that a clock has travelled past; none if the slot has a row.
-- params: job text, slot timestamptz
-- returns: id bigint, or no row
-- locks: the new row's
SELECT pgsched.trigger(%(job)s::text) WHERE NOT EXISTS (
    SELECT FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE j.name = %(job)s::text AND r.scheduled_at = %(slot)s::timestamptz)


-- name: slot_triggered
-- let a run that was triggered stand for this slot.
-- params: id bigint, slot timestamptz, interval_start timestamptz (the slot before, or null), nominal_at timestamptz
--         (where the schedule has it, if a calendar has shifted it)
-- returns: nothing
-- locks: that run
UPDATE pgsched.runs SET scheduled_at = %(slot)s, origin = 'schedule', interval_start = %(interval_start)s::timestamptz,
    nominal_at = %(nominal_at)s::timestamptz
WHERE id = %(id)s


-- name: time_travel
-- move the times of runs and keys: what lies ahead comes nearer by this interval.
-- params: by interval
-- returns: nothing
-- locks: the unfinished runs and the kept keys
WITH keys AS (
    UPDATE pgsched.kept_keys SET expires_at = expires_at - %(by)s::interval
)
UPDATE pgsched.runs SET
    -- not the marker of one that waits for others, which keeps the time that it is to start at among its options
    available_at = CASE WHEN available_at < '8998-01-01 00:00Z' THEN available_at - %(by)s::interval
                        ELSE available_at END,
    options = CASE WHEN options ? 'not_before' THEN options || jsonb_build_object('not_before',
        pgsched.not_before_of(options) - %(by)s::interval) ELSE options END,
    expires_at = expires_at - %(by)s::interval,
    held_until = held_until - %(by)s::interval
WHERE phase < 3 /* open */ AND state <> 'running'


-- name: recorder_mark
-- mark the caller's transaction: a commit delivers the notification; a rollback, also to a savepoint, takes both back.
-- Of each channel the setting holds the newest mark only, because it is sent whole each time.
-- params: channel text, mark text (the channel, a dot and a number)
-- returns: (marks text: those of the setting before)
-- locks: none
SELECT before.marks, pg_catalog.pg_notify(%(channel)s::text, %(mark)s::text),
    pg_catalog.set_config('pgsched.recorded', pg_catalog.btrim(pg_catalog.concat(pg_catalog.regexp_replace(
        before.marks, pg_catalog.concat(%(channel)s::text, '[.][0-9]+ ?'), ''), ' ', %(mark)s::text)), false)
FROM (SELECT pg_catalog.current_setting('pgsched.recorded', true) AS marks OFFSET 0) AS before


-- name: recorder_marks
-- return the newest mark of each channel, in the transaction that is open or in the session's earlier ones.
-- params: none
-- returns: (marks text), separated by spaces
-- locks: none
SELECT pg_catalog.current_setting('pgsched.recorded', true)
