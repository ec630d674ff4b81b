-- Incidents and their deliveries.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: alert_check
-- open an incident for each problem of the next watched jobs, and close the incidents that are over. An open incident
-- stays as it is: a second leader or worker that finds the same problem opens none. What a job does not say itself,
-- alert_defaults does: then all jobs are watched. Those that only decide their slots (mode shadow) are not.
-- params: after bigint (a job's id), n int (of jobs)
-- returns: (what: opened or closed, id, job, kind, details; last_id bigint: where to continue, null: at the end). At
--          least one row, with a null `what`
-- locks: the rows of those incidents
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now), general AS MATERIALIZED (
    -- LIMIT: of a table without statistics hundreds of rows are expected, and with them scans of all jobs and runs
    SELECT d.*, num_nonnulls(d.alert_after_failures, d.max_lateness, d.max_duration, d.expect_every, d.finish_by) > 0 AS is_set
    FROM (SELECT) one LEFT JOIN (SELECT * FROM pgsched.alert_defaults LIMIT 1) d ON true
), chosen AS MATERIALIZED (
    SELECT * FROM (
        -- two scans, of which one is not made: an OR would read all jobs where no default is set
        (SELECT j.* FROM pgsched.jobs j
         WHERE (j.alert_after_failures IS NOT NULL OR j.max_lateness IS NOT NULL OR j.max_duration IS NOT NULL
                OR j.expect_every IS NOT NULL OR j.finish_by IS NOT NULL) AND j.id > %(after)s
           AND NOT (SELECT is_set FROM general)
         ORDER BY j.id LIMIT %(n)s)
        UNION ALL
        (SELECT j.* FROM pgsched.jobs j WHERE j.id > %(after)s AND (SELECT is_set FROM general)
         ORDER BY j.id LIMIT %(n)s)) either
), watched AS MATERIALIZED (
    SELECT j.id, j.name, j.created_at, j.next_run_at, j.jitter, j.after_jobs, j.error, j.error_at, j.paused, j.paused_at,
        j.paused_by, coalesce(j.alert_to, g.alert_to) AS alert_to,
        nullif(coalesce(j.alert_after_failures, g.alert_after_failures), 0) AS alert_after_failures,
        nullif(coalesce(j.max_lateness, g.max_lateness), '0') AS max_lateness,
        nullif(coalesce(j.max_duration, g.max_duration), '0') AS max_duration,
        nullif(coalesce(j.expect_every, g.expect_every), '0') AS expect_every,
        nullif(coalesce(j.finish_by, g.finish_by), '0') AS finish_by
    FROM chosen j CROSS JOIN general g WHERE j.mode = 'run'
), reach AS (
    SELECT CASE WHEN count(*) < %(n)s THEN NULL ELSE max(id) END AS last_id FROM chosen
), failed AS (
    SELECT w.id AS job_id, w.name AS job, 'failures' AS kind, f.run_id,
        format('%%s of its runs in a row failed, the last with: %%s', w.alert_after_failures, left(f.error, 1000)) AS details
    FROM watched w CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE e.state = 'dead') AS dead, (array_agg(e.id ORDER BY e.scheduled_at DESC))[1] AS run_id,
            (array_agg(coalesce(e.error, e.reason) ORDER BY e.scheduled_at DESC))[1] AS error
        FROM (
            SELECT s.* FROM (
                SELECT r.id, r.state, r.scheduled_at, r.error, r.reason, r.origin FROM pgsched.runs r WHERE r.job_id = w.id
                ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
            WHERE s.state IN ('succeeded', 'dead') AND s.origin <> 'backfill' LIMIT w.alert_after_failures) e) f
    WHERE w.alert_after_failures IS NOT NULL AND f.dead = w.alert_after_failures
), late AS (
    SELECT w.id, w.name, 'lateness', f.id, f.details FROM watched w, clock CROSS JOIN LATERAL (
        SELECT NULL::bigint AS id, format('the slot of %%s is not decided yet', date_trunc('second', w.next_run_at)) AS details
        WHERE NOT w.paused AND w.next_run_at < clock.now - w.max_lateness
        UNION ALL
        SELECT NULL, format('no slot is decided any more: %%s', left(w.error, 1000))
        WHERE NOT w.paused AND w.error IS NOT NULL AND w.error_at < clock.now - w.max_lateness
        UNION ALL (
            -- OFFSET 0 keeps the planner from ordering by the slot, which would read the whole history of the job
            SELECT o.id, format('the slot of %%s has not started yet', o.scheduled_at) FROM (
                SELECT r.id, r.scheduled_at, r.started_at, r.origin FROM pgsched.runs r
                WHERE r.job_id = w.id AND r.phase < 3 /* open */ OFFSET 0) o
            WHERE o.started_at IS NULL AND o.origin = 'schedule' AND o.scheduled_at < clock.now - w.max_lateness
            ORDER BY o.scheduled_at LIMIT 1)
        UNION ALL (
            SELECT e.id, CASE WHEN e.state = 'missed' THEN format('the slot of %%s was missed: %%s', e.scheduled_at, e.reason)
                ELSE format('the slot of %%s started %%s late', e.scheduled_at,
                            date_trunc('second', e.started_at - e.scheduled_at)) END
            FROM (SELECT s.id, s.state, s.scheduled_at, coalesce(t.at, s.started_at) AS started_at, s.reason FROM (
                      SELECT r.id, r.state, r.scheduled_at, r.available_at, r.started_at, r.attempt, r.reason, r.origin
                      FROM pgsched.runs r WHERE r.job_id = w.id ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
                  CROSS JOIN LATERAL (SELECT min(a.started_at) AS at FROM pgsched.attempts a WHERE a.run_id = s.id) t
                  WHERE s.origin = 'schedule'
                    AND (t.at IS NOT NULL OR s.state = 'missed' OR s.started_at IS NOT NULL AND s.attempt <= 1
                         -- a snoozed run began earlier, at an unknown instant
                         AND (s.available_at <= s.scheduled_at + w.jitter OR s.available_at > s.started_at
                              OR w.after_jobs IS NOT NULL))
                  LIMIT 1) e
            WHERE e.state = 'missed' OR e.started_at > e.scheduled_at + w.max_lateness)
        LIMIT 1) f
    WHERE w.max_lateness IS NOT NULL
), long AS (
    SELECT w.id, w.name, 'duration', f.id, f.details FROM watched w, clock CROSS JOIN LATERAL (
        (SELECT r.id, format('an attempt has been running since %%s', date_trunc('second', r.started_at)) AS details FROM pgsched.runs r
         WHERE r.job_id = w.id AND r.phase < 3 /* open */ AND r.state = 'running'
             AND r.started_at < clock.now - w.max_duration
         ORDER BY r.started_at LIMIT 1)
        UNION ALL (
            SELECT e.id, format('its last attempt took %%s', date_trunc('milliseconds', e.finished_at - e.started_at))
            FROM (SELECT s.* FROM (
                      SELECT r.id, r.started_at, r.finished_at FROM pgsched.runs r
                      WHERE r.job_id = w.id ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
                  WHERE s.started_at IS NOT NULL AND s.finished_at IS NOT NULL LIMIT 1) e
            WHERE e.finished_at - e.started_at > w.max_duration)
        LIMIT 1) f
    WHERE w.max_duration IS NOT NULL
), silent AS (
    SELECT w.id, w.name, 'silence', NULL::bigint, CASE WHEN l.at IS NULL
            THEN format('it has never succeeded, since it was made at %%s', date_trunc('second', w.created_at))
            ELSE format('it has not succeeded since %%s', date_trunc('second', l.at)) END
        || CASE WHEN w.error IS NOT NULL THEN format('; it is not planned any more: %%s', left(w.error, 1000))
                WHEN w.paused THEN format('; it is paused since %%s by %%s', date_trunc('second', w.paused_at), w.paused_by) ELSE '' END
    FROM watched w, clock CROSS JOIN LATERAL (
        -- what was decided in mode shadow has run elsewhere
        SELECT greatest((SELECT s.finished_at FROM (
                SELECT r.state, r.reason, r.finished_at FROM pgsched.runs r WHERE r.job_id = w.id
                ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
                WHERE s.state = 'succeeded' OR s.state = 'skipped' AND starts_with(s.reason, 'shadow') LIMIT 1),
            -- rows may have gone; the hours are kept
            (SELECT max(u.last_at) FROM pgsched.rollups u WHERE u.job_id = w.id AND u.job_id <> 0
                AND u.from_at > clock.now - w.expect_every - interval '1 hour' AND u.state = 'succeeded')) AS at
        OFFSET 0) l
    WHERE w.expect_every IS NOT NULL AND coalesce(l.at, w.created_at) < clock.now - w.expect_every
      -- one that has had its last slot is expected no more
      AND (w.paused OR w.error IS NOT NULL OR w.next_run_at IS NOT NULL
           OR (SELECT true FROM pgsched.runs r WHERE r.job_id = w.id AND r.phase < 3 /* open */ LIMIT 1))
), unfinished AS (
    SELECT w.id, w.name, 'unfinished', f.id, f.details FROM watched w, clock CROSS JOIN LATERAL (
        SELECT NULL::bigint AS id, format('the slot of %%s is not decided yet', date_trunc('second', w.next_run_at)) AS details
        WHERE NOT w.paused AND w.next_run_at < clock.now - w.finish_by
        UNION ALL
        SELECT NULL, format('no slot is decided any more: %%s', left(w.error, 1000))
        WHERE NOT w.paused AND w.error IS NOT NULL AND w.error_at < clock.now - w.finish_by
        UNION ALL (
            SELECT o.id, format('the slot of %%s has not succeeded within %%s: it is %%s', o.scheduled_at, w.finish_by, o.state)
            FROM (SELECT r.id, r.scheduled_at, r.state, r.origin, r.reruns FROM pgsched.runs r
                  WHERE r.job_id = w.id AND r.phase < 3 /* open */ OFFSET 0) o
            WHERE o.origin = 'schedule' AND o.reruns IS NULL AND o.scheduled_at < clock.now - w.finish_by
            ORDER BY o.scheduled_at LIMIT 1)
        UNION ALL (
            SELECT e.id, format('the slot of %%s has not succeeded within %%s: it is %%s', e.scheduled_at, w.finish_by,
                                concat_ws(': ', e.state, left(e.reason, 500)))
            FROM (SELECT s.* FROM (
                      SELECT r.id, r.state, r.scheduled_at, r.reason, r.origin FROM pgsched.runs r WHERE r.job_id = w.id
                      ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
                  WHERE s.origin <> 'manual' AND (s.state = 'succeeded' OR s.scheduled_at < clock.now - w.finish_by)
                    -- a slot that was skipped by intention (a pause, a calendar) is expected from nobody
                    AND (s.state = 'skipped' AND s.reason !~ '^(dependency|after_jobs|overlap): ') IS NOT TRUE
                  LIMIT 1) e
            WHERE e.state <> 'succeeded')
        LIMIT 1) f
    WHERE w.finish_by IS NOT NULL
), wrong AS MATERIALIZED (
    SELECT p.*, w.alert_to FROM (
        SELECT * FROM failed UNION ALL SELECT * FROM late UNION ALL SELECT * FROM long UNION ALL SELECT * FROM silent
        UNION ALL SELECT * FROM unfinished) p JOIN watched w ON w.id = p.job_id
), opened AS (
    INSERT INTO pgsched.alerts AS a (job_id, job, kind, run_id, details, alert_to)
    SELECT job_id, job, kind, run_id, details, alert_to FROM wrong
    WHERE NOT EXISTS (SELECT FROM pgsched.alerts o WHERE o.job_id = wrong.job_id AND o.kind = wrong.kind AND o.closed_at IS NULL)
      AND set_config('pgsched.watches', 'on', true) IS NOT NULL  -- for pgsched.audit_alerts, as everywhere below
    ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING
    RETURNING 'opened' AS what, a.id, a.job, a.kind, a.details
), over AS MATERIALIZED (
    SELECT a.id, CASE
            WHEN j.id IS NULL THEN 'the job was deleted'
            WHEN a.kind = 'paused' THEN 'it was resumed'
            WHEN j.mode <> 'run' THEN 'the job is in mode ' || j.mode
            WHEN w.watched IS NOT TRUE THEN 'it is watched no more'
            WHEN a.kind = 'failures' THEN 'a run succeeded' WHEN a.kind = 'lateness' THEN 'it is on time again'
            WHEN a.kind = 'duration' THEN 'it ends in time again'
            WHEN a.kind = 'unfinished' THEN 'a slot has succeeded'
            ELSE 'it has succeeded, or is expected no more' END AS recovery
    FROM pgsched.alerts a LEFT JOIN pgsched.jobs j ON j.id = a.job_id CROSS JOIN general g
    CROSS JOIN LATERAL (SELECT CASE a.kind
            WHEN 'paused' THEN true
            WHEN 'failures' THEN coalesce(j.alert_after_failures, g.alert_after_failures) > 0
            WHEN 'lateness' THEN coalesce(j.max_lateness, g.max_lateness) > '0'
            WHEN 'duration' THEN coalesce(j.max_duration, g.max_duration) > '0'
            WHEN 'unfinished' THEN coalesce(j.finish_by, g.finish_by) > '0'
            ELSE coalesce(j.expect_every, g.expect_every) > '0' END
            AND (a.kind = 'paused' OR j.mode = 'run') IS TRUE AS watched) w
    WHERE a.closed_at IS NULL AND a.kind IN ('failures', 'lateness', 'duration', 'silence', 'unfinished', 'paused')
      AND a.job_id > %(after)s
      AND a.job_id <= coalesce((SELECT last_id FROM reach), 9223372036854775807)
      AND NOT EXISTS (SELECT FROM wrong w WHERE w.job_id = a.job_id AND w.kind = a.kind)
      -- that it is not seen is not enough: the rows may have gone, or the run is being tried again
      AND (j.id IS NULL OR w.watched IS NOT TRUE OR CASE a.kind
          WHEN 'paused' THEN NOT j.paused
          WHEN 'failures' THEN coalesce((
              SELECT s.state = 'succeeded' AND s.id >= coalesce(a.run_id, 0) FROM (
                  SELECT r.id, r.state, r.origin FROM pgsched.runs r WHERE r.job_id = a.job_id
                  ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
              WHERE s.state IN ('succeeded', 'dead') AND s.origin <> 'backfill' LIMIT 1), false)
          WHEN 'duration' THEN NOT EXISTS (SELECT FROM pgsched.runs r WHERE r.id = a.run_id AND r.phase < 3 /* open */)
          WHEN 'lateness' THEN j.error IS NULL OR j.paused
          ELSE true END)
    FOR UPDATE OF a SKIP LOCKED
), closed AS (
    UPDATE pgsched.alerts a SET closed_at = clock_timestamp(), recovery = o.recovery FROM over o
    WHERE a.id = o.id AND a.closed_at IS NULL AND set_config('pgsched.watches', 'on', true) IS NOT NULL
    RETURNING 'closed' AS what, a.id, a.job, a.kind, a.recovery AS details
)
SELECT e.*, (SELECT last_id FROM reach) AS last_id FROM (
    SELECT * FROM opened UNION ALL SELECT * FROM closed UNION ALL SELECT NULL, NULL, NULL, NULL, NULL) e


-- name: alert_dead_runs
-- open the incident about runs without a job that ended dead (alert_defaults.dead_runs), or close it. Of the newest
-- 10,000 of them that ended badly.
-- params: none
-- returns: what: opened or closed; null: neither
-- locks: that incident
WITH general AS MATERIALIZED (
    SELECT d.dead_runs, d.dead_runs_within, d.alert_to FROM (SELECT) one
    LEFT JOIN (SELECT * FROM pgsched.alert_defaults LIMIT 1) d ON true
), dead AS MATERIALIZED (
    SELECT r.id, r.queue, r.task, r.error, r.finished_at FROM (
        SELECT o.id, o.queue, o.task, o.state, coalesce(o.error, o.reason) AS error, o.finished_at FROM pgsched.runs o
        WHERE o.phase = 4 /* ended badly */ AND o.job_id IS NULL AND o.finished_at > (SELECT clock_timestamp() - dead_runs_within FROM general)
        ORDER BY o.finished_at DESC LIMIT 10000) r
    WHERE r.state = 'dead' AND (SELECT dead_runs FROM general) IS NOT NULL
), grouped AS (
    SELECT format('%%s of %%s in queue %%s', count(*), left(task, 100), left(queue, 100)) AS words, count(*) AS n
    FROM dead GROUP BY queue, task ORDER BY count(*) DESC, queue, task LIMIT 5
), wrong AS MATERIALIZED (
    SELECT d.n, l.id AS run_id, format('%%s runs without a job died within %%s: %%s%%s; the last, run %%s, with: %%s', d.n, g.dead_runs_within,
        (SELECT string_agg(words, ', ' ORDER BY n DESC, words) FROM grouped),
        CASE WHEN d.n > (SELECT sum(n) FROM grouped) THEN ', and others' ELSE '' END, l.id, left(l.error, 500)) AS details
    FROM general g CROSS JOIN (SELECT count(*) AS n FROM dead) d
    CROSS JOIN LATERAL (SELECT id, error FROM dead ORDER BY finished_at DESC, id DESC LIMIT 1) l
    WHERE d.n >= g.dead_runs
), opened AS (
    INSERT INTO pgsched.alerts (job_id, kind, run_id, details, alert_to)
    SELECT 0, 'dead_runs', w.run_id, w.details, g.alert_to FROM wrong w CROSS JOIN general g
    WHERE set_config('pgsched.watches', 'on', true) IS NOT NULL
    ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING RETURNING 'opened' AS what
), closed AS (
    UPDATE pgsched.alerts SET closed_at = clock_timestamp(), recovery = CASE WHEN g.dead_runs IS NULL
        THEN 'it is watched no more' ELSE format('fewer than %%s died within %%s', g.dead_runs, g.dead_runs_within) END
    FROM general g WHERE NOT EXISTS (SELECT FROM wrong)
      AND id = ANY (ARRAY(SELECT id FROM pgsched.alerts WHERE job_id = 0 AND kind = 'dead_runs' AND closed_at IS NULL
                          FOR UPDATE SKIP LOCKED))
      AND set_config('pgsched.watches', 'on', true) IS NOT NULL
    RETURNING 'closed' AS what
)
SELECT (SELECT what FROM opened UNION ALL SELECT what FROM closed) AS what


-- name: alert_defaults
-- return what is watched where a job does not say it itself.
-- params: none
-- returns: one row: alert_after_failures, max_lateness, max_duration, expect_every, finish_by, alert_to, dead_runs,
--          dead_runs_within
-- locks: none
SELECT alert_after_failures, max_lateness, max_duration, expect_every, finish_by, alert_to, dead_runs, dead_runs_within
FROM pgsched.alert_defaults


-- name: alert_led
-- close the incident of a missing leader, and delete incidents of long ago with their deliveries.
-- params: none
-- returns: nothing
-- locks: those incidents, skipping locked ones
WITH led AS (
    UPDATE pgsched.alerts SET closed_at = clock_timestamp(), recovery = 'there is a leader again'
    WHERE id = ANY (ARRAY(SELECT id FROM pgsched.alerts WHERE job_id = 0 AND kind = 'no_leader' AND closed_at IS NULL
                          FOR UPDATE SKIP LOCKED))
      AND set_config('pgsched.watches', 'on', true) IS NOT NULL
)
DELETE FROM pgsched.alerts
WHERE id = ANY (ARRAY(SELECT id FROM pgsched.alerts WHERE closed_at < (SELECT clock_timestamp() - interval '400 days')
                      ORDER BY closed_at LIMIT 1000 FOR UPDATE SKIP LOCKED))


-- name: alert_list
-- return incidents, the newest first.
-- params: open boolean (only open ones), job_id bigint (null: of all jobs), n int
-- returns: (id, job_id, job, kind, opened_at, closed_at, details, run_id, recovery, now; told: json of [{event, sink,
--          attempts, delivered_at, error}])
-- locks: none
SELECT a.id, a.job_id, a.job, a.kind, a.opened_at, a.closed_at, a.details, a.run_id, a.recovery, clock_timestamp() AS now,
    (SELECT coalesce(json_agg(json_build_object('event', d.event, 'sink', d.sink, 'attempts', d.attempts,
                'delivered_at', d.delivered_at, 'error', d.error) ORDER BY d.sink, d.event DESC), '[]')
     FROM pgsched.alert_deliveries d WHERE d.alert_id = a.id) AS told
FROM pgsched.alerts a
WHERE (NOT %(open)s OR a.closed_at IS NULL) AND (%(job_id)s::bigint IS NULL OR a.job_id = %(job_id)s)
ORDER BY a.id DESC LIMIT %(n)s


-- name: alert_look
-- check whether there is anything to watch, or to deliver.
-- params: none
-- returns: (watched boolean: jobs are watched or incidents open; pausing boolean: jobs may pause themselves; dead_runs
--          boolean: runs without a job are watched; pending boolean: a delivery is due)
-- locks: none
SELECT EXISTS (SELECT FROM pgsched.jobs WHERE alert_after_failures IS NOT NULL OR max_lateness IS NOT NULL
               OR max_duration IS NOT NULL OR expect_every IS NOT NULL OR finish_by IS NOT NULL)
        OR EXISTS (SELECT FROM pgsched.alerts WHERE closed_at IS NULL)
        OR EXISTS (SELECT FROM pgsched.alert_defaults d
                   WHERE num_nonnulls(d.alert_after_failures, d.max_lateness, d.max_duration, d.expect_every, d.finish_by) > 0) AS watched,
    EXISTS (SELECT FROM pgsched.jobs WHERE pause_after_failures IS NOT NULL AND NOT paused) AS pausing,
    EXISTS (SELECT FROM pgsched.alert_defaults WHERE dead_runs IS NOT NULL)
        OR EXISTS (SELECT FROM pgsched.alerts WHERE job_id = 0 AND kind = 'dead_runs' AND closed_at IS NULL) AS dead_runs,
    EXISTS (SELECT FROM pgsched.alert_deliveries WHERE delivered_at IS NULL AND next_at <= clock_timestamp())
        -- every process has the sink `log`: an alert without its row there was delivered nowhere
        OR EXISTS (SELECT FROM pgsched.alerts a
                   WHERE (a.closed_at IS NULL OR a.closed_at > clock_timestamp() - interval '1 hour'
                          OR a.closed_at > clock_timestamp() - interval '1 day' AND EXISTS (
                              SELECT FROM pgsched.alert_deliveries d WHERE d.alert_id = a.id AND d.sink = 'log'))
                     AND NOT EXISTS (SELECT FROM pgsched.alert_deliveries d WHERE d.alert_id = a.id AND d.sink = 'log'
                                     AND d.event = CASE WHEN a.closed_at IS NULL THEN 'opened' ELSE 'closed' END)) AS pending


-- name: alert_no_leader
-- check whether no process leads, and open the incident if so. Two workers open only one.
-- params: gone_s float8 (no leader was seen for this many seconds)
-- returns: (missing boolean, opened boolean)
-- locks: that incident
WITH newest AS (
    SELECT holder, coalesce(resigned_at, seen_at) AS until FROM pgsched.leader ORDER BY term DESC LIMIT 1
), missing AS MATERIALIZED (
    SELECT coalesce(CASE WHEN n.until IS NOT NULL THEN format('no process has led since %%s, when %%s did: no slot is decided, no lost run taken back', date_trunc('second', n.until), n.holder) END,
                    'no process has ever led: no slot is decided') AS details
    FROM (SELECT 1) one LEFT JOIN newest n ON true
    WHERE n.until IS NULL OR n.until < clock_timestamp() - make_interval(secs => %(gone_s)s)
), opened AS (
    INSERT INTO pgsched.alerts (job_id, kind, details) SELECT 0, 'no_leader', details FROM missing
    WHERE set_config('pgsched.watches', 'on', true) IS NOT NULL
    ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING RETURNING id
)
SELECT EXISTS (SELECT FROM missing) AS missing, EXISTS (SELECT FROM opened) AS opened


-- name: alert_owed
-- record the deliveries that these sinks are to get: of each incident that is open or was closed within the last hour;
-- and for a day after the incident's end where a delivery of it exists already. A delivery that was not taken for an
-- hour belongs to a sink that no process here has any more. It is not tried (next_at infinity) until a process has that
-- sink again. A sink with a name of its own (apprise NAME) gets only what is for all, or for that name.
-- params: sinks text[]
-- returns: nothing
-- locks: those rows, skipping those that other transactions take
WITH parked AS MATERIALIZED (
    SELECT d.alert_id, d.event, d.sink, 'infinity'::timestamptz AS next_at
    FROM pgsched.alert_deliveries d JOIN pgsched.alerts a ON a.id = d.alert_id
    WHERE d.delivered_at IS NULL AND d.next_at <= clock_timestamp()
      AND (a.closed_at < clock_timestamp() - interval '1 day'
           OR d.sink <> ALL (%(sinks)s::text[]) AND d.next_at < clock_timestamp() - interval '1 hour')
    FOR UPDATE OF d SKIP LOCKED
), wanted AS MATERIALIZED (
    SELECT d.alert_id, d.event, d.sink, clock_timestamp() AS next_at
    FROM pgsched.alert_deliveries d JOIN pgsched.alerts a ON a.id = d.alert_id
    WHERE d.delivered_at IS NULL AND d.next_at = 'infinity' AND d.sink = ANY (%(sinks)s::text[])
      AND coalesce(a.closed_at > clock_timestamp() - interval '1 day', true)
    FOR UPDATE OF d SKIP LOCKED
), moved AS (
    UPDATE pgsched.alert_deliveries d SET next_at = m.next_at FROM (TABLE parked UNION ALL TABLE wanted) m
    WHERE (d.alert_id, d.event, d.sink) = (m.alert_id, m.event, m.sink)
)
INSERT INTO pgsched.alert_deliveries (alert_id, event, sink)
SELECT a.id, e.event, s.sink FROM pgsched.alerts a
CROSS JOIN unnest(%(sinks)s::text[]) AS s(sink) CROSS JOIN (VALUES ('opened'), ('closed')) AS e(event)
WHERE (a.closed_at IS NULL OR a.closed_at > clock_timestamp() - interval '1 hour'
       OR a.closed_at > clock_timestamp() - interval '1 day' AND EXISTS (
           SELECT FROM pgsched.alert_deliveries o WHERE o.alert_id = a.id AND o.sink = s.sink))
  AND (e.event = 'opened' OR a.closed_at IS NOT NULL)
  AND (a.alert_to IS NULL OR NOT starts_with(s.sink, 'apprise ') OR substr(s.sink, 9) = ANY (a.alert_to))
ON CONFLICT DO NOTHING


-- name: alert_pause
-- pause the jobs whose newest runs all failed (jobs.pause_after_failures).
-- params: n int (of jobs)
-- returns: (id, job, reason, error: why it could not be paused, null where it was) of each
-- locks: those jobs, skipping locked ones; their incidents
SELECT id, job, reason, error FROM pgsched.pause_failing(%(n)s)


-- name: alert_take
-- take the next delivery that is due for these sinks, for as long as delivering may last. The opening of an incident is
-- delivered before its end. A delivery is given up a day after the incident is over; it keeps its error.
-- params: sinks text[], lease_s float8
-- returns: at most one row (alert_id, outside_name, event, sink, attempts, job_id, job, kind, details, run_id,
--          recovery, opened_at, closed_at)
-- locks: that delivery, skipping those that other transactions take
WITH due AS MATERIALIZED (
    SELECT d.alert_id, d.event, d.sink FROM pgsched.alert_deliveries d JOIN pgsched.alerts a ON a.id = d.alert_id
    WHERE d.delivered_at IS NULL AND d.next_at <= clock_timestamp() AND d.sink = ANY (%(sinks)s)
      AND coalesce(a.closed_at > clock_timestamp() - interval '1 day', true)
      AND NOT EXISTS (SELECT FROM pgsched.alert_deliveries o WHERE d.event = 'closed' AND o.alert_id = d.alert_id
                      AND o.event = 'opened' AND o.sink = d.sink AND o.delivered_at IS NULL)
    ORDER BY d.next_at, d.alert_id LIMIT 1 FOR UPDATE OF d SKIP LOCKED
), taken AS (
    UPDATE pgsched.alert_deliveries d SET attempts = d.attempts + 1,
        next_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM due WHERE (d.alert_id, d.event, d.sink) = (due.alert_id, due.event, due.sink)
    RETURNING d.alert_id, d.event, d.sink, d.attempts
)
SELECT t.alert_id, pgsched.outside_name(t.alert_id, a.opened_at), t.event, t.sink, t.attempts, a.job_id, a.job, a.kind, a.details, a.run_id, a.recovery, a.opened_at,
    CASE t.event WHEN 'closed' THEN a.closed_at END AS closed_at
FROM taken t JOIN pgsched.alerts a ON a.id = t.alert_id


-- name: alert_test
-- open a test incident, to see whether the sinks get it; or close it.
-- params: close boolean, details text
-- returns: id
-- locks: that row
WITH closed AS (
    UPDATE pgsched.alerts SET closed_at = clock_timestamp(), recovery = 'it was only a test'
    WHERE %(close)s AND job_id = 0 AND kind = 'test' AND closed_at IS NULL RETURNING id
), opened AS (
    INSERT INTO pgsched.alerts (job_id, kind, details) SELECT 0, 'test', %(details)s WHERE NOT %(close)s
    ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING RETURNING id
)
SELECT id FROM closed UNION ALL SELECT id FROM opened
UNION ALL SELECT id FROM pgsched.alerts WHERE NOT %(close)s AND job_id = 0 AND kind = 'test' AND closed_at IS NULL
LIMIT 1


-- name: alert_told
-- record the result of a delivery.
-- params: alert_id bigint, event text, sink text, error text (null: delivered), again_s float8 (seconds until the next
--         try)
-- returns: nothing
-- locks: that row
UPDATE pgsched.alert_deliveries SET error = %(error)s::text,
    delivered_at = CASE WHEN %(error)s::text IS NULL THEN clock_timestamp() END,
    next_at = clock_timestamp() + make_interval(secs => %(again_s)s)
WHERE alert_id = %(alert_id)s AND event = %(event)s AND sink = %(sink)s AND delivered_at IS NULL
