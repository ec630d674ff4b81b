-- alert_check: open an incident for each thing that is wrong with the next watched jobs, and close those that are over.
-- An incident that is open already stays as it is: who opens it a second time, a second leader or a worker, opens none.
-- params: after bigint (a job's id), n int (of jobs)
-- returns: (what: opened or closed, id, job, kind, details; last_id bigint: where to go on, null: that was the end). One
--          row with a null `what` at least
-- locks: the rows of those incidents
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now), watched AS MATERIALIZED (
    SELECT j.* FROM pgsched.jobs j
    WHERE (j.alert_after_failures IS NOT NULL OR j.max_lateness IS NOT NULL OR j.max_duration IS NOT NULL
           OR j.expect_every IS NOT NULL) AND j.id > %(after)s
    ORDER BY j.id LIMIT %(n)s
), reach AS (
    SELECT CASE WHEN count(*) < %(n)s THEN NULL ELSE max(id) END AS last_id FROM watched
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
    WHERE f.dead = w.alert_after_failures
), late AS (
    SELECT w.id, w.name, 'lateness', f.id, f.details FROM watched w, clock CROSS JOIN LATERAL (
        SELECT NULL::bigint AS id, format('the slot of %%s is not decided yet', date_trunc('second', w.next_run_at)) AS details
        WHERE NOT w.paused AND w.next_run_at < clock.now - w.max_lateness
        UNION ALL
        SELECT NULL, format('no slot is decided any more: %%s', left(w.error, 1000))
        WHERE NOT w.paused AND w.error IS NOT NULL AND w.error_at < clock.now - w.max_lateness
        UNION ALL (
            -- fenced off: ordered by its slot, the job's whole history would be read for it
            SELECT o.id, format('the slot of %%s has not started yet', o.scheduled_at) FROM (
                SELECT r.id, r.scheduled_at, r.started_at, r.origin FROM pgsched.runs r
                WHERE r.job_id = w.id AND r.phase < 3 OFFSET 0) o
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
                         -- one that put itself off (snoozed) began before, nobody knows when
                         AND (s.available_at <= s.scheduled_at + w.jitter OR s.available_at > s.started_at
                              OR w.after_jobs IS NOT NULL))
                  LIMIT 1) e
            WHERE e.state = 'missed' OR e.started_at > e.scheduled_at + w.max_lateness)
        LIMIT 1) f
    WHERE w.max_lateness IS NOT NULL
), long AS (
    SELECT w.id, w.name, 'duration', f.id, f.details FROM watched w, clock CROSS JOIN LATERAL (
        (SELECT r.id, format('an attempt has been running since %%s', date_trunc('second', r.started_at)) AS details FROM pgsched.runs r
         WHERE r.job_id = w.id AND r.phase < 3 AND r.state = 'running' AND r.started_at < clock.now - w.max_duration
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
        SELECT greatest((SELECT s.finished_at FROM (
                SELECT r.state, r.finished_at FROM pgsched.runs r WHERE r.job_id = w.id
                ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s WHERE s.state = 'succeeded' LIMIT 1),
            -- rows may have gone; the hours are kept
            (SELECT max(u.last_at) FROM pgsched.rollups u WHERE u.job_id = w.id AND u.job_id <> 0
                AND u.from_at > clock.now - w.expect_every - interval '1 hour' AND u.state = 'succeeded')) AS at) l
    WHERE w.expect_every IS NOT NULL AND coalesce(l.at, w.created_at) < clock.now - w.expect_every
      -- one that has had its last slot is expected no more
      AND (w.paused OR w.error IS NOT NULL OR w.next_run_at IS NOT NULL
           OR EXISTS (SELECT FROM pgsched.runs r WHERE r.job_id = w.id AND r.phase < 3))
), wrong AS MATERIALIZED (
    SELECT * FROM failed UNION ALL SELECT * FROM late UNION ALL SELECT * FROM long UNION ALL SELECT * FROM silent
), opened AS (
    INSERT INTO pgsched.alerts AS a (job_id, job, kind, run_id, details)
    SELECT job_id, job, kind, run_id, details FROM wrong
    WHERE NOT EXISTS (SELECT FROM pgsched.alerts o WHERE o.job_id = wrong.job_id AND o.kind = wrong.kind AND o.closed_at IS NULL)
    ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING
    RETURNING 'opened' AS what, a.id, a.job, a.kind, a.details
), over AS MATERIALIZED (
    SELECT a.id, CASE
            WHEN j.id IS NULL THEN 'the job was deleted'
            WHEN w.watched IS NOT TRUE THEN 'it is watched no more'
            WHEN a.kind = 'failures' THEN 'a run succeeded' WHEN a.kind = 'lateness' THEN 'it is on time again'
            WHEN a.kind = 'duration' THEN 'it ends in time again' ELSE 'it has succeeded, or is expected no more' END AS recovery
    FROM pgsched.alerts a LEFT JOIN pgsched.jobs j ON j.id = a.job_id
    CROSS JOIN LATERAL (SELECT CASE a.kind WHEN 'failures' THEN j.alert_after_failures IS NOT NULL
            WHEN 'lateness' THEN j.max_lateness IS NOT NULL WHEN 'duration' THEN j.max_duration IS NOT NULL
            ELSE j.expect_every IS NOT NULL END AS watched) w
    WHERE a.closed_at IS NULL AND a.kind IN ('failures', 'lateness', 'duration', 'silence') AND a.job_id > %(after)s
      AND a.job_id <= coalesce((SELECT last_id FROM reach), 9223372036854775807)
      AND NOT EXISTS (SELECT FROM wrong w WHERE w.job_id = a.job_id AND w.kind = a.kind)
      -- that it is not seen is not enough: the rows may have gone, or the run is being tried again
      AND (j.id IS NULL OR NOT w.watched OR CASE a.kind
          WHEN 'failures' THEN coalesce((
              SELECT s.state = 'succeeded' AND s.id >= coalesce(a.run_id, 0) FROM (
                  SELECT r.id, r.state, r.origin FROM pgsched.runs r WHERE r.job_id = a.job_id
                  ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
              WHERE s.state IN ('succeeded', 'dead') AND s.origin <> 'backfill' LIMIT 1), false)
          WHEN 'duration' THEN NOT EXISTS (SELECT FROM pgsched.runs r WHERE r.id = a.run_id AND r.phase < 3)
          WHEN 'lateness' THEN j.error IS NULL OR j.paused
          ELSE true END)
    FOR UPDATE OF a SKIP LOCKED
), closed AS (
    UPDATE pgsched.alerts a SET closed_at = clock_timestamp(), recovery = o.recovery FROM over o
    WHERE a.id = o.id AND a.closed_at IS NULL
    RETURNING 'closed' AS what, a.id, a.job, a.kind, a.recovery AS details
)
SELECT e.*, (SELECT last_id FROM reach) AS last_id FROM (
    SELECT * FROM opened UNION ALL SELECT * FROM closed UNION ALL SELECT NULL, NULL, NULL, NULL, NULL) e
