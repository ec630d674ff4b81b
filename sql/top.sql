-- The figures of `pgsched top`.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: runs_failing
-- return runs whose last attempt failed and that will be tried again, the next first. Of the scheduled runs, the first
-- `deep` are read.
-- params: n int, deep int
-- returns: (id, state, job, task, attempt, max_attempts, available_at, why, now)
-- locks: none
SELECT r.id, r.state, j.name AS job, r.task, r.attempt, r.max_attempts, r.available_at,
    coalesce(r.error, r.reason) AS why, clock_timestamp() AS now
FROM (
    SELECT soon.* FROM (SELECT * FROM pgsched.runs WHERE phase = 1 /* scheduled */
        ORDER BY available_at, id LIMIT %(deep)s) soon
    WHERE soon.attempt > 0 ORDER BY soon.available_at, soon.id LIMIT %(n)s
) r LEFT JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY r.available_at, r.id


-- name: jobs_of_interest
-- return the jobs that a person may want to see now: those in error, then by next slot, then paused ones, then finished
-- ones. Each has its newest slot.
-- params: n int, find text (a part of the name, ignoring case; null: all)
-- returns: (id, name, schedule, timezone, anchor_at, ends_at, queue, state: error, active, shadow, paused or done, error,
--          next_run_at, run_id, run_state, late_s: from slot to start, of first attempts, took_s, excluded, calendar,
--          on_excluded, shifts: as in slots_next, run_at, now)
-- locks: none
WITH found AS (
    (SELECT id, 1 AS place FROM pgsched.jobs
     WHERE NOT paused AND error IS NOT NULL
       AND (%(find)s::text IS NULL OR strpos(lower(name), lower(%(find)s::text)) > 0) ORDER BY name LIMIT %(n)s)
    UNION ALL
    (SELECT id, 2 FROM pgsched.jobs
     WHERE NOT paused AND error IS NULL AND next_run_at IS NOT NULL
       AND (%(find)s::text IS NULL OR strpos(lower(name), lower(%(find)s::text)) > 0) ORDER BY next_run_at LIMIT %(n)s)
    UNION ALL
    (SELECT id, 3 FROM pgsched.jobs
     WHERE paused AND (%(find)s::text IS NULL OR strpos(lower(name), lower(%(find)s::text)) > 0)
     ORDER BY name LIMIT %(n)s)
    UNION ALL
    (SELECT id, 4 FROM pgsched.jobs
     WHERE NOT paused AND error IS NULL AND next_run_at IS NULL
       AND (%(find)s::text IS NULL OR strpos(lower(name), lower(%(find)s::text)) > 0) ORDER BY name LIMIT %(n)s)
)
SELECT j.id, j.name, j.schedule, j.timezone, j.anchor_at, j.ends_at, pgsched.queue_of(j) AS queue,
    pgsched.job_state(j) AS state, j.error, j.next_run_at,
    r.id AS run_id, r.state AS run_state,
    CASE WHEN r.origin = 'schedule' AND r.attempt = 1
         THEN extract(epoch FROM r.started_at - r.scheduled_at)::float8 END AS late_s,
    CASE WHEN r.finished_at IS NOT NULL THEN extract(epoch FROM r.finished_at - r.started_at)::float8 END AS took_s,
    (SELECT json_agg(json_build_array(c.from_date, c.until_date, c.reason) ORDER BY c.from_date)
     FROM pgsched.job_calendars c WHERE c.job_id = j.id) AS excluded, j.calendar, j.on_excluded, j.shifts, j.run_at,
    clock_timestamp() AS now
FROM found JOIN pgsched.jobs j ON j.id = found.id LEFT JOIN LATERAL (
    SELECT id, state, origin, attempt, scheduled_at, started_at, finished_at FROM pgsched.runs
    WHERE job_id = j.id ORDER BY scheduled_at DESC LIMIT 1
) r ON true
ORDER BY found.place, CASE WHEN found.place = 2 THEN j.next_run_at END, j.name LIMIT %(n)s


-- name: run_log_end
-- return the end of a run's output.
-- params: id bigint, n int (rows), characters int (of each row)
-- returns: up to n rows (attempt, seq, stream, chunk: its end), oldest first
-- locks: none
SELECT attempt, seq, stream, right(chunk, %(characters)s) AS chunk FROM (
    SELECT attempt, seq, stream, chunk FROM pgsched.run_logs
    WHERE run_id = %(id)s ORDER BY run_id DESC, attempt DESC, seq DESC LIMIT %(n)s
) newest ORDER BY attempt, seq


-- name: runs_of_queue
-- return the runs of a queue that run or may start, in the order in which they are claimed.
-- params: queue text, n int
-- returns: (id, state, job, task, kind, queue, priority, attempt, max_attempts, available_at, started_at, now)
-- locks: none
SELECT r.id, r.state, j.name AS job, r.task, r.kind, r.queue, r.priority, r.attempt, r.max_attempts, r.available_at,
    r.started_at, clock_timestamp() AS now
FROM (SELECT * FROM pgsched.runs WHERE phase = 2 /* claimable */ AND queue = %(queue)s
      ORDER BY queue, priority, available_at, id LIMIT %(n)s) r
LEFT JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY r.priority, r.available_at, r.id


-- name: queues_set_or_paused
-- return the queues that have settings or a pause; nothing is counted.
-- params: none
-- returns: as queue_list: (name, concurrency_limit, rate, rate_s, rate_burst, fair, ageing, max_depth, on_full, keep:
--          null without settings)
-- locks: none
SELECT n.name, s.concurrency_limit, s.rate, extract(epoch FROM s.rate_period)::float8 AS rate_s, s.rate_burst,
    coalesce(s.fair, false) AS fair, s.ageing, s.max_depth, s.on_full, s.keep
FROM (SELECT name FROM pgsched.queues
      UNION SELECT name FROM pgsched.pauses
      WHERE what = 'queue' AND coalesce(resume_at > clock_timestamp(), true)) n
LEFT JOIN pgsched.queues s ON s.name = n.name ORDER BY n.name


-- name: runs_running_longest
-- return the runs that have been running for longest. They stand at the beginning of their queues, in the order in
-- which they were claimed. So at most `deep` runs are read of each queue and priority, through the index that claims
-- use.
-- params: n int, deep int, fronts int (at most this many queues and priorities)
-- returns: (id, state, job, task, kind, queue, attempt, max_attempts, started_at, worker, cancel_asked, progress: null
--          unless this attempt reported it, now)
-- locks: none
WITH RECURSIVE front AS (
    (SELECT queue, priority FROM pgsched.runs WHERE phase = 2 /* claimable */ ORDER BY queue, priority LIMIT 1)
    UNION ALL
    SELECT next.queue, next.priority FROM front f CROSS JOIN LATERAL (
        SELECT r.queue, r.priority FROM pgsched.runs r
        WHERE r.phase = 2 /* claimable */ AND (r.queue, r.priority) > (f.queue, f.priority)
            ORDER BY r.queue, r.priority LIMIT 1
    ) next
)
SELECT r.id, r.state, j.name AS job, r.task, r.kind, r.queue, r.attempt, r.max_attempts, r.started_at, w.name AS worker,
    r.cancel_requested_at IS NOT NULL AS cancel_asked,
    CASE WHEN (r.progress ->> 'attempt')::int = r.attempt THEN r.progress END AS progress, clock_timestamp() AS now
FROM (
    SELECT one.* FROM (SELECT queue, priority FROM front LIMIT %(fronts)s) f CROSS JOIN LATERAL (
        SELECT * FROM pgsched.runs x WHERE x.phase = 2 /* claimable */ AND x.queue = f.queue AND x.priority = f.priority
        ORDER BY x.queue, x.priority, x.available_at, x.id LIMIT %(deep)s
    ) one WHERE one.state = 'running' ORDER BY one.started_at, one.id LIMIT %(n)s
) r LEFT JOIN pgsched.jobs j ON j.id = r.job_id LEFT JOIN pgsched.workers w ON w.id = r.worker_id
ORDER BY r.started_at, r.id
