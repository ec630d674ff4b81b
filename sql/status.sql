-- The state of the whole system on one page.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: jobs_live
-- return one row per job for a live view, from its runs since a time.
-- params: since timestamptz, n int
-- returns: (name, kind, schedule, paused, mode, error, next_run_at, ok, failed, open, last_state, p50_s, worst_s): p50_s and
--          worst_s are the lateness of first attempts, from the slot to the start of the last attempt
-- locks: none
SELECT j.name, j.kind, coalesce(j.schedule, 'once') AS schedule, j.paused, j.mode, j.error, j.next_run_at,
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
-- return the newest runs for a live view.
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
-- count the live workers that would claim a run of this queue, kind and task.
-- params: queue text, kind text, task text (for kind task)
-- returns: (workers bigint, alive bigint: all live workers)
-- locks: none
SELECT count(*) FILTER (WHERE (queues IS NULL OR %(queue)s = ANY (queues)) AND %(kind)s = ANY (kinds)
                          AND (%(kind)s <> 'task' OR %(task)s = ANY (tasks))) AS workers, count(*) AS alive
FROM pgsched.workers WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease


-- name: runs_needing_attention
-- count runs that failed and are still kept. They lie far apart in the table, each on a page of its own. So at most the
-- newest n of the last day are counted, and `older` of those before, including missed ones.
-- params: n int, older int
-- returns: one row: dead (all that are kept), dead_day, missed_day (rows; one may stand for many slots),
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
-- return jobs that the leader could not evaluate, newest first. Paused ones are left out.
-- params: n int
-- returns: (name, error, error_at)
-- locks: none
SELECT name, error, error_at FROM pgsched.jobs WHERE error IS NOT NULL AND NOT paused
ORDER BY error_at DESC NULLS LAST, name LIMIT %(n)s


-- name: runs_finished_lately
-- return figures of the newest finished runs: how many ended in the last minutes, and how many slots of the last day
-- started late. At most `most` runs are counted and n read. On a busy system the figures cover only those; counted_s
-- and sampled_s tell how far back they reach.
-- params: n int, most int
-- returns: one row: done_1, done_5, done_15 (runs that were executed), counted, counted_s, late, read, sampled_s
-- locks: none
WITH done AS MATERIALIZED (
    SELECT finished_at, started_at IS NOT NULL AND state IN ('succeeded', 'dead', 'cancelled') AS executed FROM pgsched.runs
    WHERE phase >= 3 /* ended */ AND finished_at > (SELECT clock_timestamp() - interval '15 minutes')
    ORDER BY finished_at DESC LIMIT %(most)s
), newest AS MATERIALIZED (
    SELECT finished_at, started_at, scheduled_at, job_id, attempt, origin FROM pgsched.runs
    WHERE phase >= 3 /* ended */ AND finished_at > (SELECT clock_timestamp() - interval '1 day')
    ORDER BY finished_at DESC LIMIT %(n)s
)
SELECT d.*, l.* FROM (
    SELECT count(*) FILTER (WHERE executed AND finished_at > clock_timestamp() - interval '1 minute') AS done_1,
        count(*) FILTER (WHERE executed AND finished_at > clock_timestamp() - interval '5 minutes') AS done_5,
        count(*) FILTER (WHERE executed) AS done_15, count(*) AS counted,
        extract(epoch FROM clock_timestamp() - min(finished_at))::float8 AS counted_s
    FROM done
) d, (
    SELECT count(*) FILTER (WHERE late) AS late, count(*) AS read,
        extract(epoch FROM clock_timestamp() - min(finished_at))::float8 AS sampled_s
    FROM (
    SELECT n.finished_at,
        -- a retried run's started_at is that of its last attempt, which says nothing about the slot
        n.origin = 'schedule' AND n.attempt = 1
            AND n.started_at > n.scheduled_at + j.jitter + greatest(j.misfire_after, '1 second') AS late
    FROM newest n LEFT JOIN pgsched.jobs j ON j.id = n.job_id
    ) f
) l


-- name: jobs_counted
-- count the jobs. Each is counted once, by the state that job_list gives it: paused first, then in error.
-- params: none
-- returns: one row: total, paused, broken (in error), planned (with a next slot), shadow (planned, but in mode shadow),
--          overdue_s: how long the oldest undecided slot of a live job has been due (null: none)
-- locks: none
SELECT count(*) AS total, count(*) FILTER (WHERE paused) AS paused,
    count(*) FILTER (WHERE NOT paused AND error IS NOT NULL) AS broken,
    count(*) FILTER (WHERE NOT paused AND error IS NULL AND next_run_at IS NOT NULL) AS planned,
    count(*) FILTER (WHERE NOT paused AND error IS NULL AND next_run_at IS NOT NULL AND mode = 'shadow') AS shadow,
    extract(epoch FROM clock_timestamp() - min(next_run_at) FILTER (
        WHERE NOT paused AND next_run_at < clock_timestamp()))::float8 AS overdue_s
FROM pgsched.jobs


-- name: leader_newest_term
-- return the newest term.
-- params: none
-- returns: (term, holder, hostname, pid, elected_at, seen_s: seconds since it was last seen, resigned, terms_lately:
--          how many terms began within a minute), or no row
-- locks: none
SELECT term, holder, hostname, pid, elected_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    resigned_at IS NOT NULL AS resigned,
    (SELECT count(*) FROM pgsched.leader l WHERE l.elected_at > clock_timestamp() - interval '1 minute') AS terms_lately
FROM pgsched.leader ORDER BY term DESC LIMIT 1


-- name: slots_next
-- return the next slots that are to run, not those of jobs in mode shadow.
-- params: n int
-- returns: (name, next_run_at, schedule, timezone, anchor_at, ends_at, now, excluded: the job's own dates as
--          (from_date, until_date, reason), null without any; calendar, on_excluded, shifts, run_at: the job's)
-- locks: none
SELECT j.name, j.next_run_at, j.schedule, j.timezone, j.anchor_at, j.ends_at, clock_timestamp() AS now,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded, j.calendar, j.on_excluded, j.shifts, j.run_at
FROM pgsched.jobs j WHERE NOT j.paused AND j.next_run_at IS NOT NULL AND j.mode = 'run' ORDER BY j.next_run_at LIMIT %(n)s


-- name: runs_open_by_state
-- count the unfinished runs by queue and state. Queued and running ones are also split by what they need, and queued
-- ones by whether any live worker offers it. Waiting ones are split by whether only a limit keeps them, and those that
-- wait for another release of their task by that task. One pass reads at most n open runs of each phase, through its
-- partial index.
-- params: n int, misfit text (the beginning of the reason of runs that wait for another release)
-- returns: (queue, state, limited, kind, task: of runs of kind task, misfit: the task, n, oldest_s: seconds since the
--          oldest could start, or started; newest_s: seconds since the newest started; untimed: how many have no
--          timeout, offered)
-- locks: none
WITH alive AS MATERIALIZED (
    SELECT queues, kinds, tasks FROM pgsched.workers
    WHERE stopped_at IS NULL AND stopping_at IS NULL AND seen_at > clock_timestamp() - lease
), open AS (
    SELECT queue, state, state = 'waiting' AND ready_at IS NOT NULL AS limited,
        CASE WHEN phase = 2 /* claimable */ THEN kind END AS kind,
        CASE WHEN phase = 2 /* claimable */ AND kind = 'task' THEN task END AS task,
        CASE WHEN state IN ('scheduled', 'queued') AND starts_with(reason, %(misfit)s) THEN task END AS misfit, count(*) AS n,
        min(CASE WHEN state = 'running' THEN started_at WHEN state = 'waiting' THEN greatest(ready_at, available_at)
            ELSE available_at END) AS oldest_at,
        max(started_at) AS newest_at, count(*) FILTER (WHERE timeout IS NULL) AS untimed
    FROM ((SELECT queue, state, phase, kind, task, available_at, started_at, ready_at, timeout, reason FROM pgsched.runs
        WHERE phase = 2 /* claimable */ LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, phase, kind, task, available_at, started_at, ready_at, timeout, reason FROM pgsched.runs
              WHERE phase = 1 /* scheduled */ LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, phase, kind, task, available_at, started_at, ready_at, timeout, reason FROM pgsched.runs
           WHERE phase = 0 /* waiting */ AND ready_at IS NULL LIMIT %(n)s)
          UNION ALL
          (SELECT queue, state, phase, kind, task, available_at, started_at, ready_at, timeout, reason FROM pgsched.runs
           WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL LIMIT %(n)s)) r
    GROUP BY 1, 2, 3, 4, 5, 6
)
SELECT queue, state, limited, kind, task, misfit, n, extract(epoch FROM clock_timestamp() - oldest_at)::float8 AS oldest_s,
    CASE WHEN state = 'running' THEN extract(epoch FROM clock_timestamp() - newest_at)::float8 END AS newest_s, untimed,
    state <> 'queued' OR EXISTS (
        SELECT FROM alive a WHERE (a.queues IS NULL OR open.queue = ANY (a.queues)) AND open.kind = ANY (a.kinds)
          AND (open.kind <> 'task' OR open.task = ANY (a.tasks))) AS offered
FROM open ORDER BY queue, state, n DESC


-- name: workers_alive
-- return the live workers: not signed off, and seen within their lease.
-- params: none
-- returns: (id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues, tasks: how many,
--          started_at, seen_s, stopping, blocked_s: for how long its event loop has been blocked, blocked_by, pooler:
--          session or transaction, null: none)
-- locks: none
SELECT id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues,
    cardinality(tasks) AS tasks, started_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    stopping_at IS NOT NULL AS stopping, extract(epoch FROM clock_timestamp() - blocked_at)::float8 AS blocked_s,
    blocked_by, pooler
FROM pgsched.workers WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - lease
ORDER BY id


-- name: health_leader_failing
-- return the duties of the leader that fail as a whole, or that cost it its session twice and are left out for a while.
-- The error itself is for roles that may read all of set_aside: `doctor` shows it.
-- params: none
-- returns: (duty, since_s float8, left boolean: it is left out), the longest first
-- locks: none
SELECT duty, extract(epoch FROM clock_timestamp() - since)::float8 AS since_s, row_id = 'session' AS left
FROM pgsched.set_aside WHERE row_id = '' OR row_id = 'session' AND tries > 1 ORDER BY 2 DESC, 1 LIMIT 100


-- name: health_workers_lost
-- return workers that vanished within the last ten minutes: not seen for a lease, and never signed off. For a worker
-- that it has given up, the leader records the time at which it was last seen.
-- params: n int
-- returns: (name, seen_s, running: at its last heartbeat, runs_by_task: json)
-- locks: none
SELECT name, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s, running, lost_runs AS runs_by_task
FROM (
    SELECT name, seen_at, lease, running, lost_runs FROM pgsched.workers WHERE stopped_at IS NULL
    UNION ALL
    SELECT name, seen_at, lease, running, lost_runs FROM pgsched.workers
    WHERE stopped_at > (SELECT clock_timestamp()) - interval '10 minutes' AND stopped_at <= seen_at
) w
WHERE seen_at > clock_timestamp() - interval '10 minutes' AND seen_at < clock_timestamp() - lease
ORDER BY seen_at DESC LIMIT %(n)s


-- name: health_jobs_ahead
-- return jobs whose high-water mark lies ahead of the clock, so that none of their slots runs until then.
-- params: ahead_s float8, n int
-- returns: (name, until, ahead_s), the largest ahead_s first
-- locks: none
SELECT name, decided_until AS until, extract(epoch FROM decided_until - clock_timestamp())::float8 AS ahead_s
FROM pgsched.jobs
WHERE decided_until > clock_timestamp() + make_interval(secs => %(ahead_s)s) AND schedule IS NOT NULL AND NOT paused
  AND error IS NULL AND coalesce(ends_at > clock_timestamp(), true) AND coalesce(run_count < max_runs, true)
ORDER BY decided_until DESC LIMIT %(n)s


-- name: health_releases_gone
-- return tasks of which no live worker has the newest release.
-- params: tasks text[]
-- returns: (task, gone_s: since a worker with it was last seen, of the live workers and the last 1000 that stopped; or
--          since it was registered, if none of these had it)
-- locks: none
WITH newest AS MATERIALIZED (
    SELECT DISTINCT ON (t.task) t.task, t.app, t.release, t.first_seen_at FROM pgsched.tasks t
    WHERE t.task = ANY (%(tasks)s::text[]) ORDER BY t.task, t.first_seen_at DESC
), known AS MATERIALIZED (
    SELECT w.app, w.tasks, w.releases, w.seen_at, w.stopping_at IS NULL AND w.seen_at > clock_timestamp() - w.lease AS live
    FROM pgsched.workers w WHERE w.stopped_at IS NULL
    UNION ALL
    (SELECT w.app, w.tasks, w.releases, w.seen_at, false FROM pgsched.workers w WHERE w.stopped_at IS NOT NULL
     ORDER BY w.stopped_at DESC LIMIT 1000)
)
SELECT n.task, extract(epoch FROM clock_timestamp() - coalesce(w.seen_at, n.first_seen_at))::float8 AS gone_s
FROM newest n CROSS JOIN LATERAL (
    SELECT max(k.seen_at) AS seen_at, bool_or(k.live) AS live
    FROM known k WHERE k.app = n.app AND k.releases[array_position(k.tasks, n.task)] = n.release
) w
WHERE w.live IS NOT TRUE ORDER BY n.task


-- name: health_queues_shut
-- return queues from which nothing is claimed until their first limit takes effect, and the sessions whose transactions
-- have written runs since before: the leader waits for these.
-- params: none
-- returns: (queue, since_s, waits_for int[]: pids)
-- locks: none
SELECT p.name AS queue, extract(epoch FROM clock_timestamp() - p.paused_at)::float8 AS since_s, ARRAY(
    SELECT DISTINCT l.pid FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.relation = 'pgsched.runs'::regclass AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND coalesce(a.xact_start < p.paused_at, true) AND l.pid IS NOT NULL ORDER BY l.pid) AS waits_for
FROM pgsched.pauses p WHERE p.what = 'limit' ORDER BY p.name


-- name: health_unpruned
-- return a run that should have been deleted an hour ago. For each length of time that anything is kept for, n runs are
-- read: those that ended just before the last run that should be deleted. If pruning is stuck, such runs are there.
-- Runs that stay for a reason do not count, as in prune_pick and prune_delete.
-- params: n int
-- returns: (id, age_s: since it ended, keep_s) of the oldest of these, or no row
-- locks: none
WITH said AS (
    SELECT keep FROM pgsched.retention UNION ALL SELECT keep FROM pgsched.queues WHERE keep IS NOT NULL
    UNION ALL SELECT keep FROM pgsched.jobs WHERE keep IS NOT NULL
), lengths AS MATERIALIZED (
    SELECT DISTINCT k.value::interval AS keep FROM said, jsonb_each_text(said.keep) k
    UNION SELECT interval '7 days' ORDER BY 1 LIMIT 20
), old AS MATERIALIZED (
    SELECT DISTINCT r.id, r.job_id, r.scheduled_at, r.state, r.queue, r.finished_at, r.covers_until, r.keep
    FROM lengths l CROSS JOIN LATERAL (
        SELECT * FROM pgsched.runs e
        WHERE e.phase >= 3 /* ended */ AND e.finished_at < (SELECT clock_timestamp()) - l.keep - interval '1 hour'
          AND e.finished_at <= (SELECT counted_until FROM pgsched.rollup_mark)
        ORDER BY e.finished_at DESC LIMIT %(n)s) r
)
SELECT o.id, extract(epoch FROM clock_timestamp() - greatest(o.finished_at, o.covers_until))::float8 AS age_s,
    extract(epoch FROM k.keep)::float8 AS keep_s
FROM old o CROSS JOIN pgsched.retention g LEFT JOIN pgsched.jobs j ON j.id = o.job_id
LEFT JOIN pgsched.queues q ON q.name = o.queue
CROSS JOIN LATERAL coalesce(o.keep, pgsched.keep_of(o.state, j.keep, q.keep, g.keep)) AS k(keep)
WHERE greatest(o.finished_at, o.covers_until) < clock_timestamp() - k.keep - interval '1 hour'
  AND (j.id IS NULL OR o.scheduled_at < (
      SELECT s.scheduled_at FROM pgsched.runs s WHERE s.job_id = o.job_id
      ORDER BY s.job_id DESC, s.scheduled_at DESC LIMIT 1))
  AND NOT EXISTS (SELECT FROM pgsched.dependencies d JOIN pgsched.runs c ON c.id = d.run_id
                  WHERE d.parent_id = o.id AND c.phase < 3 /* open */ OFFSET 0)
  AND NOT EXISTS (
      SELECT FROM pgsched.runs w CROSS JOIN LATERAL pgsched.after_jobs_of(w.options) AS a(job_id)
      WHERE w.phase = 0 /* waiting */ AND w.ready_at IS NULL AND w.available_at = '8998-01-01 00:00Z'
        AND a.job_id = o.job_id
        AND (w.scheduled_at = o.scheduled_at OR w.scheduled_at <= o.covers_until) OFFSET 0)
ORDER BY o.finished_at LIMIT 1


-- name: health_notify
-- return how full the notification queue is.
-- params: none
-- returns: usage float8 0-1, one row
-- locks: none
SELECT pg_notification_queue_usage()::float8 AS usage
