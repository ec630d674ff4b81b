-- History for pages and charts.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: jobs_after
-- return the jobs that a job waits for, and the jobs that wait for it.
-- params: id bigint, after text (an array of bigint: the jobs that it waits for), n int
-- returns: (side: before or behind, id, name: null if the job was deleted), by name
-- locks: none
SELECT 'before' AS side, a.id, j.name FROM unnest(%(after)s::text::bigint[]) a(id) LEFT JOIN pgsched.jobs j ON j.id = a.id
UNION ALL
(SELECT 'behind', id, name FROM pgsched.jobs WHERE after_jobs @> ARRAY[%(id)s::bigint] ORDER BY name LIMIT %(n)s)
ORDER BY 1, 3, 2


-- name: runs_open_counted
-- count the runs that have not ended, by state, up to n of each phase, through its partial index.
-- params: n int
-- returns: one row: queued, running, scheduled, waiting, counted (false: there are more than were counted)
-- locks: none
WITH o AS MATERIALIZED (
    (SELECT state FROM pgsched.runs WHERE phase = 2 /* claimable */ LIMIT %(n)s)
    UNION ALL (SELECT state FROM pgsched.runs WHERE phase = 1 /* scheduled */ LIMIT %(n)s)
    UNION ALL (SELECT state FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL LIMIT %(n)s)
    UNION ALL (SELECT state FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL LIMIT %(n)s)
)
SELECT count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'running') AS running,
    count(*) FILTER (WHERE state = 'scheduled') AS scheduled, count(*) FILTER (WHERE state = 'waiting') AS waiting,
    count(*) < %(n)s AS counted
FROM o


-- name: runs_failed_newest
-- return the newest runs that failed, through the index of those.
-- params: n int
-- returns: (id, state, job, task, finished_at, attempt, max_attempts, why)
-- locks: none
SELECT r.id, r.state, j.name AS job, r.task, r.finished_at, r.attempt, r.max_attempts,
    coalesce(r.error, r.reason) AS why
FROM (SELECT * FROM pgsched.runs WHERE phase = 4 /* ended badly */ ORDER BY finished_at DESC LIMIT %(n)s) r
LEFT JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY r.finished_at DESC


-- name: slots_of_job_by_day
-- count the slots of a job on each of some days, by their result. The newest n rows are read, through the index over
-- slots. A row that stands for several slots counts once by its own result; its other slots count as skipped, on the
-- day of the newest of them.
-- params: job_id bigint, edges timestamptz[] (the beginning of each day, and the end of the last), n int
-- returns: (day: 1 is the first; kind: ran, late, skipped, cancelled, missed, dead or open; slots; read: rows;
--          first_at: the oldest)
-- locks: none
WITH newest AS MATERIALIZED (
    SELECT r.scheduled_at, r.state, r.covers_count,
        r.origin = 'schedule' AND r.attempt = 1
            AND r.started_at > r.scheduled_at + coalesce(j.jitter, '0') + greatest(coalesce(j.misfire_after, '60 seconds'), '1 second') AS late
    FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE r.job_id = %(job_id)s AND r.scheduled_at >= (%(edges)s::timestamptz[])[1]
      AND r.scheduled_at < (%(edges)s::timestamptz[])[cardinality(%(edges)s::timestamptz[])]
    ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT %(n)s
)
SELECT width_bucket(n.scheduled_at, %(edges)s::timestamptz[]) AS day, s.kind, sum(s.slots)::bigint AS slots,
    sum(s.read)::bigint AS read, min(n.scheduled_at) AS first_at
FROM newest n CROSS JOIN LATERAL (
    SELECT CASE WHEN n.state = 'succeeded' THEN CASE WHEN n.late THEN 'late' ELSE 'ran' END
                WHEN n.state IN ('skipped', 'cancelled', 'missed', 'dead') THEN n.state ELSE 'open' END AS kind,
        CASE WHEN n.state IN ('skipped', 'missed') THEN coalesce(n.covers_count, 1) ELSE 1 END AS slots, 1 AS read
    UNION ALL
    SELECT 'skipped', n.covers_count - 1, 0
    WHERE n.covers_count > 1 AND n.state NOT IN ('skipped', 'missed')
) s
GROUP BY 1, 2


-- name: runs_finished_by_stretch
-- return figures of the finished runs of each interval of time. At most the newest n runs of an interval are read,
-- through the index over their end. If there are more, `seen` is n, `ended` counts up to `most` of them, and
-- earliest_at is the oldest end that was read. The newest interval ends now.
-- params: width_s float8 (of an interval), count int (of intervals, up to now), n int, most int
-- returns: one row per interval, oldest first: from_at, until_at, seen, ended, executed, dead, missed, retried,
--          earliest_at; wait_50, wait_95: seconds from being due to the start; late_50, late_95, late_max: seconds from
--          slot to start, of first attempts
-- locks: none
WITH clock AS (
    SELECT to_timestamp(floor(extract(epoch FROM clock_timestamp()) / %(width_s)s) * %(width_s)s) AS until
)
SELECT b.from_at, b.until_at, s.*, CASE WHEN s.seen < %(n)s THEN s.seen ELSE (
    SELECT count(*) FROM (SELECT FROM pgsched.runs r
        WHERE r.phase >= 3 /* ended */ AND r.finished_at >= b.from_at AND r.finished_at < b.until_at LIMIT %(most)s) c) END AS ended
FROM (
    SELECT until - (k * %(width_s)s * interval '1 second') AS from_at,
        least(until - ((k - 1) * %(width_s)s * interval '1 second'), clock_timestamp()) AS until_at
    FROM clock, generate_series(0, %(count)s - 1) k
) b CROSS JOIN LATERAL (
    SELECT count(*) AS seen, count(*) FILTER (WHERE started) AS executed,
        count(*) FILTER (WHERE state = 'dead') AS dead, count(*) FILTER (WHERE state = 'missed') AS missed,
        count(*) FILTER (WHERE started AND attempt > 1) AS retried, min(finished_at) AS earliest_at,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_s) AS wait_50,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY wait_s) AS wait_95,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY late_s) AS late_50,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY late_s) AS late_95, max(late_s) AS late_max
    FROM (
        SELECT r.state, r.attempt, r.finished_at, r.started_at IS NOT NULL AS started,
            CASE WHEN r.started_at IS NOT NULL
                 THEN greatest(extract(epoch FROM r.started_at - r.available_at)::float8, 0) END AS wait_s,
            CASE WHEN r.origin = 'schedule' AND r.attempt = 1
                 THEN extract(epoch FROM r.started_at - r.scheduled_at)::float8 END AS late_s
        FROM pgsched.runs r
        WHERE r.phase >= 3 /* ended */ AND r.finished_at >= b.from_at AND r.finished_at < b.until_at
        ORDER BY r.finished_at DESC LIMIT %(n)s
    ) newest
) s ORDER BY b.from_at


-- name: slots_of_job
-- return the slots of a job that have a row in an interval of time, the newest n. A row that stands for several slots
-- is found by the newest of them.
-- params: job_id bigint, from_at timestamptz, until_at timestamptz, n int
-- returns: (id, state, origin, scheduled_at, started_at, finished_at, attempt, max_attempts, late_s: null unless it
--          started late, reason, error, covers_from, covers_until, covers_count), newest first
-- locks: none
SELECT r.id, r.state, r.origin, r.scheduled_at, r.started_at, r.finished_at, r.attempt, r.max_attempts, r.reason, r.error,
    r.covers_from, r.covers_until, r.covers_count,
    CASE WHEN r.origin = 'schedule' AND r.attempt = 1
              AND r.started_at > r.scheduled_at + coalesce(j.jitter, '0') + greatest(coalesce(j.misfire_after, '60 seconds'), '1 second')
         THEN extract(epoch FROM r.started_at - r.scheduled_at)::float8 END AS late_s
FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id
WHERE r.job_id = %(job_id)s AND r.scheduled_at >= %(from_at)s AND r.scheduled_at < %(until_at)s
ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT %(n)s


-- name: slots_of_jobs_newest
-- return the newest slots of some jobs, through the index over slots of each.
-- params: ids text (an array of bigint), n int (of each job)
-- returns: (job_id, id, state, scheduled_at, started_at, finished_at, late_s: null unless it started late, reason,
--          covers_count), oldest first
-- locks: none
SELECT r.job_id, r.id, r.state, r.scheduled_at, r.started_at, r.finished_at, r.covers_count,
    coalesce(r.error, r.reason) AS reason,
    CASE WHEN r.origin = 'schedule' AND r.attempt = 1 AND r.started_at > r.scheduled_at + j.jitter + greatest(j.misfire_after, '1 second')
         THEN extract(epoch FROM r.started_at - r.scheduled_at)::float8 END AS late_s
FROM pgsched.jobs j CROSS JOIN LATERAL (
    SELECT * FROM pgsched.runs s WHERE s.job_id = j.id ORDER BY s.job_id DESC, s.scheduled_at DESC LIMIT %(n)s
) r
WHERE j.id = ANY (%(ids)s::text::bigint[])
ORDER BY r.job_id, r.scheduled_at


-- name: workers_alive_draining
-- return the live workers as workers_alive does, and whether they were asked to drain.
-- params: none
-- returns: (id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues, tasks: how many,
--          started_at, seen_s, stopping, blocked_s: for how long its event loop has been blocked, blocked_by,
--          drain_asked)
-- locks: none
SELECT id, name, hostname, pid, version, app, concurrency, running, abandoned, kinds, queues,
    cardinality(tasks) AS tasks, started_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 AS seen_s,
    stopping_at IS NOT NULL AS stopping, extract(epoch FROM clock_timestamp() - blocked_at)::float8 AS blocked_s,
    blocked_by, drain_asked_at IS NOT NULL AS drain_asked
FROM pgsched.workers WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - lease
ORDER BY id


-- name: workers_gone
-- return the workers that were alive within the last hour and are not any more, by the newest ids.
-- params: n int
-- returns: (id, name, seen_at, started_at, stopped_at: null if it vanished, now)
-- locks: none
SELECT id, name, seen_at, started_at, stopped_at, clock_timestamp() AS now
FROM (SELECT id, name, seen_at, started_at, stopped_at, lease FROM pgsched.workers ORDER BY id DESC LIMIT 500) w
WHERE (stopped_at IS NOT NULL OR seen_at <= clock_timestamp() - lease) AND seen_at > clock_timestamp() - interval '1 hour'
ORDER BY seen_at DESC LIMIT %(n)s


-- name: report_ended
-- return what became of the runs that ended within a time, by job, and by task for runs without a job. The newest n are
-- read, through the index over their end. A row that stands for several slots counts each of them.
-- params: since, until timestamptz; n int; from_hour, to_hour timestamptz (`inside` counts the runs between them)
-- returns: (job_id null: none, job: its name, null if it was deleted, task, ok, dead, missed, skipped, cancelled, late:
--          slots that started later than max_lateness, else a minute, after their time; took_50_s, took_max_s, error: of
--          the newest dead run; read, inside)
-- locks: none
WITH newest AS MATERIALIZED (
    SELECT job_id, CASE WHEN job_id IS NOT NULL THEN '' WHEN kind IN ('task', 'command') THEN left(task, 100)
                        ELSE '(' || kind || ')' END AS task,
        state, origin, attempt, scheduled_at, started_at, finished_at, covers_count, error
    FROM pgsched.runs
    WHERE phase >= 3 /* ended */ AND finished_at >= %(since)s::timestamptz AND finished_at < %(until)s::timestamptz
    ORDER BY finished_at DESC LIMIT %(n)s
)
SELECT n.job_id, j.name AS job, n.task,
    count(*) FILTER (WHERE n.state = 'succeeded') AS ok, count(*) FILTER (WHERE n.state = 'dead') AS dead,
    coalesce(sum(coalesce(n.covers_count, 1)) FILTER (WHERE n.state = 'missed'), 0)::bigint AS missed,
    coalesce(sum(CASE WHEN n.state = 'skipped' THEN coalesce(n.covers_count, 1)
                      WHEN n.state <> 'missed' THEN coalesce(n.covers_count, 1) - 1 END), 0)::bigint AS skipped,
    count(*) FILTER (WHERE n.state = 'cancelled') AS cancelled,
    count(*) FILTER (WHERE n.origin = 'schedule' AND n.attempt = 1
        AND n.started_at > n.scheduled_at + coalesce(j.max_lateness, j.jitter + interval '1 minute', '1 minute')) AS late,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM n.finished_at - n.started_at)::float8)
        FILTER (WHERE n.state IN ('succeeded', 'dead')) AS took_50_s,
    max(extract(epoch FROM n.finished_at - n.started_at)::float8)
        FILTER (WHERE n.state IN ('succeeded', 'dead')) AS took_max_s,
    left((array_agg(n.error ORDER BY n.finished_at DESC) FILTER (WHERE n.state = 'dead'))[1], 500) AS error,
    count(*) AS read,
    count(*) FILTER (WHERE n.finished_at >= %(from_hour)s::timestamptz AND n.finished_at < %(to_hour)s::timestamptz) AS inside
FROM newest n LEFT JOIN pgsched.jobs j ON j.id = n.job_id
GROUP BY n.job_id, j.name, n.task


-- name: report_counted_runs
-- return how many runs were counted that ended within some full hours.
-- params: from_hour, to_hour timestamptz
-- returns: runs
-- locks: none
SELECT coalesce(sum(runs), 0)::bigint AS runs FROM pgsched.rollups
WHERE width = 'hour of all' AND from_at >= %(from_hour)s::timestamptz AND from_at < %(to_hour)s::timestamptz


-- name: report_counted
-- return what became of the runs that ended within some full hours, from what was counted.
-- params: from_hour, until timestamptz
-- returns: (job_id null: none, job: its name, null if it was deleted, task, state, runs, max_lateness_s, durations and
--          lates bigint[]: counts by bin (pgsched.bin_of))
-- locks: none
SELECT nullif(r.job_id, 0) AS job_id, j.name AS job, CASE WHEN r.job_id = 0 THEN r.task ELSE '' END AS task, r.state,
    sum(r.runs)::bigint AS runs,
    extract(epoch FROM max(coalesce(j.max_lateness, j.jitter + interval '1 minute', '1 minute')))::float8 AS max_lateness_s,
    ARRAY[sum(r.durations[1]), sum(r.durations[2]), sum(r.durations[3]), sum(r.durations[4]), sum(r.durations[5]),
        sum(r.durations[6]), sum(r.durations[7]), sum(r.durations[8]), sum(r.durations[9]), sum(r.durations[10]),
        sum(r.durations[11]), sum(r.durations[12]), sum(r.durations[13]), sum(r.durations[14]), sum(r.durations[15]),
        sum(r.durations[16]), sum(r.durations[17]), sum(r.durations[18]), sum(r.durations[19]), sum(r.durations[20]),
        sum(r.durations[21]), sum(r.durations[22]), sum(r.durations[23]), sum(r.durations[24]), sum(r.durations[25]),
        sum(r.durations[26])]::bigint[] AS durations,
    ARRAY[sum(r.lates[1]), sum(r.lates[2]), sum(r.lates[3]), sum(r.lates[4]), sum(r.lates[5]), sum(r.lates[6]), sum(r.lates[7]),
        sum(r.lates[8]), sum(r.lates[9]), sum(r.lates[10]), sum(r.lates[11]), sum(r.lates[12]), sum(r.lates[13]),
        sum(r.lates[14]), sum(r.lates[15]), sum(r.lates[16]), sum(r.lates[17]), sum(r.lates[18]), sum(r.lates[19]),
        sum(r.lates[20]), sum(r.lates[21]), sum(r.lates[22]), sum(r.lates[23]), sum(r.lates[24]), sum(r.lates[25]),
        sum(r.lates[26])]::bigint[] AS lates
FROM pgsched.rollups r LEFT JOIN pgsched.jobs j ON j.id = r.job_id
WHERE r.width = 'hour' AND r.from_at >= %(from_hour)s::timestamptz AND r.from_at < %(until)s::timestamptz
GROUP BY r.job_id, j.name, 3, r.state
