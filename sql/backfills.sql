-- Backfills: past slots that run once more.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: backfill_add
-- request the slots of a job in [from_at, to_at) once more, and notify the leader.
-- params: job text, from_at, to_at timestamptz, mode text, max_active int, reverse boolean, priority int
-- returns: id
-- locks: none beyond the new row
SELECT pgsched.backfill(%(job)s::text, %(from_at)s::timestamptz, %(to_at)s::timestamptz, %(mode)s::text,
    %(max_active)s::integer, %(reverse)s::boolean, %(priority)s::integer) AS id


-- name: backfill_add_in_order
-- request backfills of several jobs, one after the other, and notify the leader.
-- params: jobs text[] (in this order), from_at, to_at timestamptz, mode text, max_active int, reverse boolean, priority
--         int
-- returns: ids bigint[]
-- locks: none beyond the new rows
SELECT pgsched.backfill_in_order(%(jobs)s::text[], %(from_at)s::timestamptz, %(to_at)s::timestamptz, %(mode)s::text,
    %(max_active)s::integer, %(reverse)s::boolean, %(priority)s::integer) AS ids


-- name: backfill_advance
-- record how far a backfill is; finished, or failed if there is an error.
-- params: id bigint, cursor_at timestamptz (null: unchanged), considered, started int, finished boolean, error text
-- returns: nothing
-- locks: the row that backfill_open locked
UPDATE pgsched.backfills SET cursor_at = coalesce(%(cursor_at)s, cursor_at), considered = considered + %(considered)s,
    started = started + %(started)s, finished_at = CASE WHEN %(finished)s THEN clock_timestamp() END, error = %(error)s
WHERE id = %(id)s


-- name: backfill_calendar
-- return what a job excludes.
-- params: job_id bigint
-- returns: (excluded: its own dates (from_date, until_date, reason), null without any; calendar, on_excluded), or no row
-- locks: none
SELECT (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
        FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded, j.calendar, j.on_excluded
FROM pgsched.jobs j WHERE j.id = %(job_id)s


-- name: backfill_cancel
-- end a backfill and its open runs.
-- params: id bigint, reason text
-- returns: what: cancelled, or finished (it had ended before); null: no such backfill
-- locks: the backfill and its open runs
SELECT pgsched.cancel_backfill(%(id)s, %(reason)s) AS what


-- name: backfill_count
-- record how many slots a backfill has that was requested without counting them.
-- params: id bigint, slots bigint
-- returns: nothing
-- locks: the row that backfill_open locked
UPDATE pgsched.backfills SET slots = %(slots)s WHERE id = %(id)s


-- name: backfill_insert
-- make runs for slots that have no row yet, with the job's current settings. The high-water mark does not change. Runs of
-- a job with after_jobs wait for the slots of those jobs, as slots of the schedule do.
-- params: id bigint (of the backfill), job_id bigint, priority smallint, slots timestamptz[]; parallel to them starts
--         timestamptz[] (the slot before each) and nominals timestamptz[] (where the schedule has a shifted one, or null)
-- returns: id of each new row
-- locks: FOR KEY SHARE on the job: a deletion sees the new rows, or they are not made. Fails at once if another
--        transaction deletes or renames the job; the batch is tried again
INSERT INTO pgsched.runs (job_id, scheduled_at, state, available_at, backfill_id, priority, origin, queue, kind, task,
    args, owner, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, options, tags,
    slot_zone, concurrency_key, interval_start, nominal_at)
SELECT j.id, s.slot, CASE WHEN j.after_jobs <> '{}' THEN 'waiting' ELSE 'queued' END,
    CASE WHEN j.after_jobs <> '{}' THEN '8998-01-01 00:00Z' ELSE clock_timestamp() END, %(id)s, %(priority)s,
    'backfill', j.queue, j.kind, j.task, j.args, j.owner, j.max_attempts,
    j.timeout, j.kill_after, j.backoff, j.backoff_base, j.backoff_max, j.backoff_jitter,
    CASE WHEN j.after_jobs <> '{}' THEN pgsched.held_options(j, s.slot, false) ELSE pgsched.job_options(j) END, j.tags,
    nullif(j.timezone, 'UTC'), pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, j.args), s.start, s.nominal
FROM unnest(%(slots)s::timestamptz[], %(starts)s::timestamptz[], %(nominals)s::timestamptz[]) WITH ORDINALITY
    AS s(slot, start, nominal, n) JOIN pgsched.jobs j ON j.id = %(job_id)s
ORDER BY s.n FOR KEY SHARE OF j NOWAIT
ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
RETURNING id


-- name: backfill_jobs
-- return the names of the jobs before and behind a job (jobs.after_jobs), each one behind those that it waits for.
-- params: job text, upstream, downstream boolean
-- returns: jobs text[], the job is one of them
-- locks: none
SELECT pgsched.jobs_in_order(%(job)s::text, %(upstream)s::boolean, %(downstream)s::boolean) AS jobs


-- name: backfill_open
-- lock some open backfills that can go on now: they have no open runs, or fewer than max_active and slots are left. A
-- backfill that only waits for its last runs is not among them, and takes no other's turn. Backfills take turns. One that
-- was requested together with others (pgsched.backfill_in_order) begins when the one before it has ended.
-- params: n int, look int (look at the next `look` open backfills), after bigint (the id that was looked at last),
--         aside bigint[] as text (backfills to leave out)
-- returns: (last: the last id that was looked at, null: there are no others; id (null: none can go on), and the columns
--          of one backfill; active: its open runs; slots: null if they were not counted; job_exists)
-- locks: FOR UPDATE on those backfills, skipping one that is being cancelled
WITH next AS MATERIALIZED (
    SELECT id FROM (
        (SELECT id FROM pgsched.backfills WHERE finished_at IS NULL AND id > %(after)s ORDER BY id LIMIT %(look)s)
        UNION ALL
        (SELECT id FROM pgsched.backfills WHERE finished_at IS NULL AND id <= %(after)s ORDER BY id LIMIT %(look)s)
    ) both_ways
    ORDER BY id <= %(after)s, id LIMIT %(look)s
), looked AS MATERIALIZED (
    SELECT CASE WHEN count(*) = %(look)s THEN coalesce(max(id) FILTER (WHERE id <= %(after)s), max(id)) END AS last FROM next
)
SELECT l.last, o.* FROM looked l LEFT JOIN LATERAL (
    SELECT b.id, b.job_id, b.job, b.schedule, b.timezone, b.anchor_at, b.from_at, b.to_at, b.mode, b.max_active, b.reverse,
        b.priority, b.slots, b.cursor_at, r.active,
        EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = b.job_id) AS job_exists
    FROM pgsched.backfills b CROSS JOIN LATERAL (
        SELECT count(*) AS active FROM pgsched.runs r WHERE r.backfill_id = b.id AND r.phase < 3 /* open */
    ) r
    WHERE b.id = ANY (ARRAY(SELECT id FROM next)) AND b.finished_at IS NULL AND b.id <> ALL (%(aside)s::text::bigint[])
      AND (r.active = 0 OR r.active < b.max_active AND coalesce(b.considered < b.slots, true))
      AND (b.after_backfill IS NULL OR (SELECT p.finished_at IS NULL FROM pgsched.backfills p
                                        WHERE p.id = b.after_backfill) IS NOT TRUE)
    ORDER BY b.id <= %(after)s, b.id LIMIT %(n)s
    FOR UPDATE OF b SKIP LOCKED
) o ON true
ORDER BY o.id <= %(after)s, o.id


-- name: backfill_rerun
-- run ended runs of slots again, with the job's current settings: the same rows, with further attempts. A success that
-- is repeated leaves its attempt as evidence, as every other attempt does. Runs of a job with after_jobs wait for the
-- slots of those jobs anew.
-- params: id bigint (of the backfill), job_id bigint, priority smallint, ids bigint[]; starts timestamptz[]: parallel to
--         them, the slot before each, as a run that stood for several slots is repeated for its own alone
-- returns: id of each run that is queued again
-- locks: those runs and their edges, and FOR KEY SHARE on the job against its deletion. Fails at once if another
--        transaction has locked one: the leader has other duties, and the batch is tried again. A run that was revived
--        in the meantime is left alone.
WITH old AS MATERIALIZED (
    SELECT r.id, r.state, r.token, r.attempt, r.started_at, r.finished_at, r.worker_id
    FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE r.id = ANY (%(ids)s::bigint[]) AND r.job_id = %(job_id)s AND r.phase >= 3 /* ended */
    FOR UPDATE OF r NOWAIT FOR KEY SHARE OF j NOWAIT
), evidence AS (
    INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, finished_at, worker_id, worker)
    SELECT o.id, o.token, o.attempt, 'succeeded', o.started_at, o.finished_at, o.worker_id, w.name
    FROM old o LEFT JOIN pgsched.workers w ON w.id = o.worker_id
    WHERE o.state = 'succeeded' AND o.token IS NOT NULL
    ON CONFLICT (run_id, token) DO NOTHING
), edges AS (
    DELETE FROM pgsched.dependencies d WHERE d.run_id = ANY (ARRAY(SELECT id FROM old))
        AND (SELECT j.after_jobs <> '{}' FROM pgsched.jobs j WHERE j.id = %(job_id)s)
), again AS (
    UPDATE pgsched.runs r SET
        state = CASE WHEN o.waits THEN 'waiting'
            ELSE pgsched.back_in_line('queued', coalesce(j.queue, o.queue, 'default'), o.key) END, concurrency_key = o.key,
        ready_at = CASE WHEN NOT o.waits THEN clock_timestamp() END,
        -- a run that has started waits for no other one
        started_at = CASE WHEN NOT o.waits THEN r.started_at END,
        finished_at = NULL, token = NULL, lease_until = NULL,
        available_at = CASE WHEN o.waits THEN '8998-01-01 00:00Z' ELSE clock_timestamp() END,
        reruns = coalesce(r.reruns, 0) + 1, crashes = 0, cancel_requested_at = NULL, cancel_reason = NULL, reason = NULL,
        expires_at = NULL, held_until = NULL, result = NULL, backfill_id = %(id)s, origin = 'backfill',
        priority = %(priority)s,
        max_attempts = least(1000, r.attempt + coalesce(j.max_attempts, o.max_attempts, 3)),
        queue = coalesce(j.queue, o.queue, 'default'), kind = j.kind, task = j.task,
        args = j.args, owner = j.owner, timeout = coalesce(j.timeout, o.timeout),
        kill_after = coalesce(j.kill_after, make_interval(secs => (o.more ->> 'kill_after')::float8)),
        backoff = coalesce(j.backoff, o.more ->> 'backoff'),
        backoff_base = coalesce(j.backoff_base, make_interval(secs => (o.more ->> 'backoff_base')::float8)),
        backoff_max = coalesce(j.backoff_max, make_interval(secs => (o.more ->> 'backoff_max')::float8)),
        backoff_jitter = coalesce(j.backoff_jitter, (o.more ->> 'backoff_jitter')::float8),
        options = CASE WHEN o.waits THEN pgsched.held_options(j, r.scheduled_at, false) ELSE pgsched.job_options(j) END,
        tags = coalesce(j.tags, o.tags), slot_zone = nullif(j.timezone, 'UTC'),
        has_children = (SELECT true FROM pgsched.dependencies d WHERE d.parent_id = r.id AND d.state = 'open' LIMIT 1),
        -- what its row says of the other slots of a stretch stays true of them
        covers_state = CASE WHEN r.covers_from < r.covers_until THEN coalesce(r.covers_state, r.state) END,
        covers_reason = CASE WHEN r.covers_state IS NOT NULL THEN r.covers_reason
            WHEN r.covers_from < r.covers_until THEN r.reason END,
        interval_start = coalesce((SELECT s.start FROM unnest(%(ids)s::bigint[], %(starts)s::timestamptz[]) s(id, start)
                                   -- an earlier calendar may have shifted the row to before the slot
                                   WHERE s.id = r.id AND s.start < r.scheduled_at), r.interval_start)
    FROM old JOIN pgsched.jobs j ON j.id = %(job_id)s CROSS JOIN LATERAL (
        SELECT t.*, coalesce(j.after_jobs <> '{}', false) AS waits, pgsched.limited_key(j.task, t.more, coalesce(
            pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, j.args),
            pgsched.run_key(NULL, t.concurrency_key, NULL, j.args))) AS key
        FROM pgsched.task_options(CASE j.kind WHEN 'task' THEN j.task END) t
    ) o
    WHERE r.id = old.id
    RETURNING r.id, r.queue, r.state
)
SELECT id, CASE state WHEN 'queued' THEN pgsched.notify('pgsched_runs', pgsched.queue_mark(queue))
    ELSE pgsched.notify('pgsched_leader', 'runs') END AS woken FROM again


-- name: backfill_rows
-- return what is known of some slots of a job: their own rows, and the rows that stand for a stretch of slots. The row
-- of a stretch has its newest slot, or that of a stretch of excluded dates the newest of its first batch, because later
-- batches extend it. So the stretches of the given slots are among these rows, soon after them, or just before them.
-- Before them all runs that a person made are read until the first other row, without a bound: no stretch may be missed.
-- params: job_id bigint, slots timestamptz[] (not empty)
-- returns: (id, scheduled_at, state, started_at, covers_from, covers_until, covers_state: the state of the stretch's
--          row before it was revived for its own slot)
-- locks: none
WITH ends AS MATERIALIZED (SELECT min(s) AS first, max(s) AS last FROM unnest(%(slots)s::timestamptz[]) AS s)
SELECT r.id, r.scheduled_at, r.state, r.started_at, r.covers_from, r.covers_until, r.covers_state
FROM ends JOIN pgsched.runs r ON r.job_id = %(job_id)s AND r.scheduled_at BETWEEN ends.first AND ends.last
WHERE r.covers_from IS NOT NULL OR r.scheduled_at = ANY (%(slots)s::timestamptz[])
UNION ALL
SELECT r.id, r.scheduled_at, r.state, r.started_at, r.covers_from, r.covers_until, r.covers_state
FROM ends CROSS JOIN LATERAL (
    SELECT * FROM pgsched.runs WHERE job_id = %(job_id)s AND scheduled_at > ends.last ORDER BY scheduled_at LIMIT 1000
) r
WHERE r.covers_from <= ends.last
UNION ALL
SELECT r.id, r.scheduled_at, r.state, r.started_at, r.covers_from, r.covers_until, r.covers_state
FROM ends CROSS JOIN LATERAL (
    SELECT * FROM pgsched.runs WHERE job_id = %(job_id)s AND scheduled_at < ends.first
        AND (origin = 'schedule' OR covers_from IS NOT NULL)  -- as in tick_extend: runs that a person made are no end
    ORDER BY job_id DESC, scheduled_at DESC LIMIT 1
) r
WHERE r.covers_until >= ends.first


-- name: backfill_show
-- return one backfill, or the newest ones, with the states of their runs that are still kept.
-- params: id bigint (null: all), n int
-- returns: one row per backfill, newest first; state is running, finished, cancelled or failed; leading: there is a
--          leader
-- locks: none
SELECT b.id, b.job_id, b.job, b.schedule, b.timezone, b.from_at, b.to_at, b.mode, b.max_active, b.reverse, b.priority,
    b.together, b.after_backfill, b.slots, b.considered, b.started, b.cursor_at, b.requested_by, b.created_at, b.cancelled_at, b.cancelled_by,
    b.finished_at, b.error,
    CASE WHEN b.error IS NOT NULL THEN 'failed' WHEN b.cancelled_at IS NOT NULL THEN 'cancelled'
         WHEN b.finished_at IS NOT NULL THEN 'finished' ELSE 'running' END AS state,
    r.open, r.succeeded, r.dead, r.cancelled, r.missed, clock_timestamp() AS now,
    EXISTS (SELECT FROM pgsched.leader WHERE resigned_at IS NULL
            AND seen_at > clock_timestamp() - interval '5 seconds') AS leading
FROM pgsched.backfills b CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE phase < 3 /* open */) AS open, count(*) FILTER (WHERE r.state = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE r.state = 'dead') AS dead, count(*) FILTER (WHERE r.state = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE r.state = 'missed') AS missed
    FROM pgsched.runs r WHERE r.backfill_id = b.id
) r
WHERE %(id)s::bigint IS NULL OR b.id = %(id)s
ORDER BY b.id DESC LIMIT %(n)s


-- name: backfill_shifted_rows
-- return the rows of nominal slots of a job that a calendar shifts, or has shifted, wherever they lie.
-- params: job_id bigint, nominals timestamptz[] (not empty), days int: how far from the nominal instants to look
-- returns: as backfill_rows, and nominal_at
-- locks: none
SELECT r.id, r.scheduled_at, r.state, r.started_at, r.covers_from, r.covers_until, r.covers_state,
    coalesce(r.nominal_at, r.scheduled_at) AS nominal_at
FROM pgsched.runs r
WHERE r.job_id = %(job_id)s
    AND r.scheduled_at >= (SELECT min(n) FROM unnest(%(nominals)s::timestamptz[]) n) - make_interval(days => %(days)s)
    AND r.scheduled_at <= (SELECT max(n) FROM unnest(%(nominals)s::timestamptz[]) n) + make_interval(days => %(days)s)
    AND coalesce(r.nominal_at, r.scheduled_at) = ANY (%(nominals)s::timestamptz[])
