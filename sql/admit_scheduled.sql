-- admit_scheduled: scheduled runs whose time has come become claimable, and their queues are woken.
-- params: n int
-- returns: admitted bigint
-- locks: row locks on those runs, skipping locked ones
WITH due AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE phase = 1 AND available_at <= clock_timestamp()
    ORDER BY available_at, id LIMIT %(n)s FOR UPDATE SKIP LOCKED
), admitted AS (
    UPDATE pgsched.runs r SET state = 'queued' FROM due WHERE r.id = due.id RETURNING r.queue
), woken AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM admitted) q
)
SELECT (SELECT count(*) FROM admitted) AS admitted, (SELECT count(*) FROM woken) AS notified
