-- The whole system on one page.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: jobs_live
-- one line a job for a live view, over its runs since an instant.
-- params: since timestamptz, n int
-- returns: (name, kind, schedule, paused, error, next_run_at, ok, failed, open, last_state, p50_s, worst_s): lateness is
--          from the slot to the start of the last attempt, of first attempts only
-- locks: none
SELECT j.name, j.kind, coalesce(j.schedule, 'once') AS schedule, j.paused, j.error, j.next_run_at,
    s.ok, s.failed, s.open, s.last_state, s.p50_s, s.worst_s
FROM pgsched.jobs j CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE r.state = 'succeeded') AS ok,
        count(*) FILTER (WHERE r.state IN ('dead', 'missed', 'skipped')) AS failed,
        count(*) FILTER (WHERE r.phase < 3 /* open */) AS open,
        (array_agg(r.state ORDER BY r.scheduled_at DESC))[1] AS last_state,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM r.started_at - r.scheduled_at))
            FILTER (WHERE r.attempt = 1) AS p50_s,
        max(extract(epoch FROM r.started_at - r.scheduled_at)) FILTER (WHERE r.attempt = 1) AS worst_s
    FROM pgsched.runs r WHERE r.job_id = j.id AND r.scheduled_at >= %(since)s
) s
ORDER BY j.name LIMIT %(n)s


-- name: runs_live
-- the newest runs for a live view.
-- params: n int
-- returns: (id, name, state, scheduled_at, attempt, max_attempts, late_s, took_s, detail)
-- locks: none
SELECT r.id, coalesce(j.name, r.task) AS name, r.state, r.scheduled_at, r.attempt, r.max_attempts,
    extract(epoch FROM r.started_at - coalesce(r.scheduled_at, r.created_at))::float8 AS late_s,
    extract(epoch FROM r.finished_at - r.started_at)::float8 AS took_s,
    coalesce(r.error, r.reason, r.result::text) AS detail
FROM (SELECT * FROM pgsched.runs ORDER BY id DESC LIMIT %(n)s) r LEFT JOIN pgsched.jobs j ON j.id = r.job_id
ORDER BY r.id DESC


-- name: workers_offering
-- how many live workers would claim a run of this queue, kind and task.
-- params: queue text, kind text, task text (of kind task)
-- returns: (workers bigint, alive bigint: live workers altogether)
-- locks: none
SELECT count(*) FILTER (WHERE (queues IS NULL OR %(queue)s = ANY (queues)) AND %(kind)s = ANY (kinds)
                          AND (%(kind)s <> 'task' OR %(task)s = ANY (tasks))) AS workers, count(*) AS alive
FROM pgsched.workers WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease


-- name: runs_needing_attention
-- runs that ended badly and are still kept. They lie far apart in the table, each on a page of its own:
-- at most the newest n of the last day are counted, and `older` of those before, of which missed ones count as well.
-- params: n int, older int
-- returns: one row: dead (all that are kept), dead_day, missed_day (rows; one can cover many slots),
--          missed_slots_day, sampled (there may be more than n of the last day), uncounted (more may be kept)
-- locks: none
WITH day AS MATERIALIZED (
    SELECT clock_timestamp() - interval '1 day' AS since
), lately AS MATERIALIZED (
    SELECT state, coalesce(covers_count, 1) AS slots FROM pgsched.runs
    WHERE phase = 4 /* ended badly */ AND finished_at > (SELECT since FROM day) ORDER BY finished_at DESC LIMIT %(n)s
), before AS MATERIALIZED (
    SELECT state FROM pgsched.runs
    WHERE phase = 4 /* ended badly */ AND finished_at <= (SELECT since FROM day) ORDER BY finished_at DESC LIMIT %(older)s
), today AS (
    SELECT count(*) FILTER (WHERE state = 'dead') AS dead, count(*) FILTER (WHERE state = 'missed') AS missed,
        coalesce(sum(slots) FILTER (WHERE state = 'missed'), 0)::bigint AS missed_slots, count(*) >= %(n)s AS sampled
    FROM lately
), older AS (
    SELECT count(*) FILTER (WHERE state = 'dead') AS dead, count(*) >= %(older)s AS sampled FROM before
)
SELECT t.dead + o.dead AS dead, t.dead AS dead_day, t.missed AS missed_day, t.missed_slots AS missed_slots_day, t.sampled,
    t.sampled OR o.sampled AS uncounted
FROM today t, older o


-- name: jobs_in_error
-- jobs that the leader could not evaluate, newest first. Those that are paused are not wanted now.
-- params: n int
-- returns: (name, error, error_at)
-- locks: none
SELECT name, error, error_at FROM pgsched.jobs WHERE error IS NOT NULL AND NOT paused
ORDER BY error_at DESC NULLS LAST, name LIMIT %(n)s


-- name: runs_finished_lately
-- what the newest finished runs say: how many ended in the last minutes, and how many of the slots
-- of the last day started late. At most n runs are read: on a busy system the figures are of those, and
-- sampled_s says how far back they reach.
-- params: n int
-- returns: one row: done_1, done_5, done_15 (runs that were executed), late, read, sampled_s
-- locks: none
WITH newest AS MATERIALIZED (
    SELECT finished_at, started_at, scheduled_at, job_id, state, attempt, origin FROM pgsched.runs
    WHERE phase >= 3 /* ended */ AND finished_at > (SELECT clock_timestamp() - interval '1 day')
    ORDER BY finished_at DESC LIMIT %(n)s
)
SELECT count(*) FILTER (WHERE executed AND finished_at > clock_timestamp() - interval '1 minute') AS done_1,
    count(*) FILTER (WHERE executed AND finished_at > clock_timestamp() - interval '5 minutes') AS done_5,
    count(*) FILTER (WHERE executed AND finished_at > clock_timestamp() - interval '15 minutes') AS done_15,
    count(*) FILTER (WHERE late) AS late, count(*) AS read,
    extract(epoch FROM clock_timestamp() - min(finished_at))::float8 AS sampled_s
FROM (
    SELECT n.finished_at, n.started_at IS NOT NULL AND n.state IN ('succeeded', 'dead', 'cancelled') AS executed,
        -- a retried run's started_at is that of its last attempt, which says nothing about the slot
        n.origin = 'schedule' AND n.attempt = 1
            AND n.started_at > n.scheduled_at + j.jitter + greatest(j.misfire_after, '1 second') AS late
    FROM newest n LEFT JOIN pgsched.jobs j ON j.id = n.job_id
) f


-- name: jobs_counted
-- how many jobs there are. Each is counted once, as job_list names its state: paused, then in error.
-- params: none
-- returns: one row: total, paused, broken (in error), planned (with a next slot), overdue_s: how long the oldest
--          slot of a live job has been due undecided (null: none)
-- locks: none
SELECT count(*) AS total, count(*) FILTER (WHERE paused) AS paused,
    count(*) FILTER (WHERE NOT paused AND error IS NOT NULL) AS broken,
    count(*) FILTER (WHERE NOT paused AND error IS NULL AND next_run_at IS NOT NULL) AS planned,
    extract(epoch FROM clock_timestamp() - min(next_run_at) FILTER (
        WHERE NOT paused AND next_run_at < clock_timestamp()))::float8 AS overdue_s
FROM pgsched.jobs


-- name: leader_newest_term
-- the newest term.
-- params: none
-- returns: (term, holder, hostname, pid, elected_at, seen_s: seconds since it was last seen, resigned, terms_lately: how
--          many terms began within a minute), or no row
-- locks: none
SELECT term, holder, hostname, pid, elected_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    resigned_at IS NOT NULL AS resigned,
    (SELECT count(*) FROM pgsched.leader l WHERE l.elected_at > clock_timestamp() - interval '1 minute') AS terms_lately
FROM pgsched.leader ORDER BY term DESC LIMIT 1


-- name: slots_next
-- the slots that come next.
-- params: n int
-- returns: (name, next_run_at, schedule, timezone, anchor_at, ends_at, now, excluded: the rows of the job's calendar as
--          (from_date, until_date, reason), null without)
-- locks: none
SELECT j.name, j.next_run_at, j.schedule, j.timezone, j.anchor_at, j.ends_at, clock_timestamp() AS now,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded
FROM pgsched.jobs j WHERE NOT j.paused AND j.next_run_at IS NOT NULL ORDER BY j.next_run_at LIMIT %(n)s


-- name: runs_open_by_state
-- the unfinished runs by queue and state, queued ones also by what they need and whether any live worker
-- offers it. One pass over at most n open runs of each phase, through its partial index.
-- params: n int
-- returns: (queue, state, kind, task: of runs of kind task, n, oldest_s: age of the oldest since it could start, offered)
-- locks: none
WITH alive AS MATERIALIZED (
    SELECT queues, kinds, tasks FROM pgsched.workers
    WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease
), open AS (
    SELECT queue, state, CASE WHEN state = 'queued' THEN kind END AS kind,
        CASE WHEN state = 'queued' AND kind = 'task' THEN task END AS task,
        count(*) AS n, min(CASE WHEN state = 'running' THEN started_at ELSE available_at END) AS oldest_at
    FROM ((SELECT queue, state, kind, task, available_at, started_at FROM pgsched.runs
        WHERE phase = 2 /* claimable */ LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, kind, task, available_at, started_at FROM pgsched.runs
              WHERE phase = 1 /* scheduled */ LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, kind, task, available_at, started_at FROM pgsched.runs
           WHERE phase = 0 /* waiting */ AND ready_at IS NULL LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, kind, task, available_at, started_at FROM pgsched.runs
           WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL LIMIT %(n)s)) r
    GROUP BY 1, 2, 3, 4
)
SELECT queue, state, kind, task, n, extract(epoch FROM clock_timestamp() - oldest_at)::float8 AS oldest_s,
    state <> 'queued' OR EXISTS (
        SELECT FROM alive a WHERE (a.queues IS NULL OR open.queue = ANY (a.queues)) AND open.kind = ANY (a.kinds)
          AND (open.kind <> 'task' OR open.task = ANY (a.tasks))) AS offered
FROM open ORDER BY queue, state, n DESC


-- name: workers_alive
-- the workers that are alive: not signed off, and seen within their lease.
-- params: none
-- returns: (id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues, tasks: how many,
--          started_at, seen_s, stopping, blocked_s: for how long its loop has not turned, blocked_by,
--          pooler: session or transaction, null: none)
-- locks: none
SELECT id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues,
    cardinality(tasks) AS tasks, started_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    stopping_at IS NOT NULL AS stopping, extract(epoch FROM clock_timestamp() - blocked_at)::float8 AS blocked_s,
    blocked_by, pooler
FROM pgsched.workers WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - lease
ORDER BY id
