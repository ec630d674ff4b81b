-- What the test kit asks of a database. For tests only.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: runs_ended_since
-- how the Python runs ended that have ended since then.
-- params: since timestamptz, queues text[] (null: every queue)
-- returns: (state text, n bigint)
-- locks: none
SELECT state, count(*) FROM pgsched.runs
WHERE phase >= 3 /* ended */ AND finished_at >= %(since)s AND kind = 'task'
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
GROUP BY state ORDER BY state


-- name: runs_hurry
-- runs that are due later are due now.
-- params: tasks text[], queues text[] (null: every queue)
-- returns: nothing
-- locks: those runs
UPDATE pgsched.runs SET available_at = clock_timestamp()
WHERE phase = 1 /* scheduled */ AND available_at > clock_timestamp() AND kind = 'task'
    AND task = ANY (%(tasks)s::text[])
    AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))


-- name: jobs_of_clock
-- the jobs whose slots a clock that travels may pass.
-- params: none
-- returns: (name, schedule, timezone, anchor_at), by name
-- locks: none
SELECT name, schedule, timezone, anchor_at FROM pgsched.jobs
WHERE schedule IS NOT NULL AND NOT paused ORDER BY name


-- name: runs_open_of_tasks
-- what a drain still waits for: runs of these tasks that are due, or all of them that have not finished;
-- not those that wait for a run which has not.
-- params: tasks text[], queues text[] (null: every queue), scheduled boolean (those that are due later too)
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
-- the unfinished runs of a task, or of all Python tasks, in the order in which they were made.
-- params: task text; null: all
-- returns: one row per run
-- locks: none
SELECT id, task, args, queue, priority, available_at, tags, unique_key, idempotency_key,
    concurrency_key, state, result, error, attempt,
    max_attempts, scheduled_at
FROM pgsched.runs WHERE phase < 3 /* open */ AND kind = 'task' AND (%(task)s::text IS NULL OR task = %(task)s::text)
ORDER BY id


-- name: slot_travelled
-- a run of a job for a slot that a clock has travelled past; none if the slot has its row.
-- params: job text, slot timestamptz
-- returns: id bigint, or no row
-- locks: the new row's
SELECT pgsched.trigger(%(job)s::text) WHERE NOT EXISTS (
    SELECT FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE j.name = %(job)s::text AND r.scheduled_at = %(slot)s::timestamptz)


-- name: slot_triggered
-- a run that was triggered stands for this slot.
-- params: id bigint, slot timestamptz
-- returns: nothing
-- locks: that run
UPDATE pgsched.runs SET scheduled_at = %(slot)s, origin = 'schedule' WHERE id = %(id)s


-- name: time_travel
-- time goes on for runs and keys: what would come to pass by then is as near as it would be.
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
