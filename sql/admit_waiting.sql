-- admit_waiting: per job, the oldest run held back by an overlap policy starts once no other run of the job is open,
-- unless it may not start any more.
-- A backfill's runs hold nothing back.
-- params: n int
-- returns: admitted bigint
-- locks: row locks on those runs, skipping locked ones
WITH free AS MATERIALIZED (
    SELECT w.id FROM pgsched.runs w
    WHERE w.phase = 0 AND w.available_at <= clock_timestamp()
      AND coalesce(least(w.held_until, w.expires_at) > clock_timestamp(), true) AND NOT EXISTS (
        SELECT FROM pgsched.runs o WHERE o.job_id = w.job_id AND o.phase < 3 AND o.id <> w.id AND o.origin <> 'backfill'
          AND (o.state <> 'waiting' OR (o.scheduled_at, o.id) < (w.scheduled_at, w.id)))
    ORDER BY w.available_at, w.id LIMIT %(n)s FOR UPDATE SKIP LOCKED
), admitted AS (
    UPDATE pgsched.runs r SET state = 'queued' FROM free WHERE r.id = free.id RETURNING r.queue
), woken AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM admitted) q
)
SELECT (SELECT count(*) FROM admitted) AS admitted, (SELECT count(*) FROM woken) AS notified
