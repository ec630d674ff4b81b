-- admit_scheduled: scheduled runs whose time has come become claimable, and their queues are woken; those that are
-- limited wait for their limits from now on.
-- params: n int
-- returns: admitted bigint
-- locks: row locks on those runs, skipping locked ones
WITH due AS MATERIALIZED (
    -- the clock is asked once, and bounds the scan; asked for each row it would only filter it, and all that is
    -- scheduled be read
    SELECT id FROM pgsched.runs WHERE phase = 1 AND available_at <= (SELECT clock_timestamp())
    ORDER BY available_at, id LIMIT %(n)s FOR UPDATE SKIP LOCKED
), admitted AS (
    UPDATE pgsched.runs r SET (state, phase) = (  -- OFFSET 0: asked for once
            SELECT b.state, pgsched.phase_of(b.state)
            FROM (SELECT pgsched.back_in_line('queued', r.queue, r.concurrency_key) OFFSET 0) AS b(state)),
        -- what was admitted before keeps its place
        ready_at = CASE WHEN pgsched.is_limited(r.queue, r.concurrency_key)
                   THEN coalesce(r.ready_at, clock_timestamp()) ELSE r.ready_at END
    FROM due WHERE r.id = due.id RETURNING r.queue, r.state
), woken AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM admitted WHERE state = 'queued') q
)
SELECT (SELECT count(*) FROM admitted) AS admitted, (SELECT count(*) FROM woken) AS notified
