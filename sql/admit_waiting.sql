-- admit_waiting: per job, the oldest run held back by a policy starts once no other run of the job is open, unless it may
-- not start any more; what has started once may. A backfill's runs hold nothing back. One that is limited waits for its
-- limits from then on, and counts as open; retry_within binds it no more.
-- params: n int
-- returns: admitted bigint
-- locks: row locks on those runs, skipping locked ones
WITH RECURSIVE oldest AS (
    -- one probe of the index a job, not one row of it for each held run: a job may have a hundred thousand of them
    (SELECT job_id, id FROM pgsched.runs WHERE phase = 0 AND ready_at IS NULL AND job_id IS NOT NULL
     ORDER BY job_id, scheduled_at, id LIMIT 1)
    UNION ALL
    SELECT next.job_id, next.id FROM oldest CROSS JOIN LATERAL (
        SELECT r.job_id, r.id FROM pgsched.runs r WHERE r.phase = 0 AND r.ready_at IS NULL AND r.job_id > oldest.job_id
        ORDER BY r.job_id, r.scheduled_at, r.id LIMIT 1
    ) next
), unblocked AS MATERIALIZED (
    -- not NOT EXISTS: stale statistics would make a join of it that reads all open runs of all jobs
    SELECT oldest.id FROM oldest
    WHERE (SELECT true FROM pgsched.runs o WHERE o.job_id = oldest.job_id AND o.phase < 3
           AND (o.state <> 'waiting' OR o.ready_at IS NOT NULL) AND o.origin <> 'backfill' LIMIT 1) IS NULL
    UNION ALL
    -- the clock is asked once and bounds the scan: all that waits for other runs would be read else
    SELECT id FROM pgsched.runs
    WHERE phase = 0 AND ready_at IS NULL AND job_id IS NULL AND available_at <= (SELECT clock_timestamp())
), free AS MATERIALIZED (
    -- by key, and not by phase: an index of that would be read through
    SELECT w.id FROM pgsched.runs w
    WHERE w.id = ANY (ARRAY(SELECT id FROM unblocked)) AND w.state = 'waiting' AND w.ready_at IS NULL
      AND w.available_at <= clock_timestamp()
      AND coalesce(least(w.held_until, w.expires_at) > clock_timestamp() OR w.started_at IS NOT NULL, true)
    ORDER BY w.available_at, w.id LIMIT %(n)s FOR UPDATE SKIP LOCKED
), admitted AS (
    UPDATE pgsched.runs r SET (state, phase) = (  -- OFFSET 0: asked for once
            SELECT b.state, pgsched.phase_of(b.state)
            FROM (SELECT pgsched.back_in_line('queued', r.queue, r.concurrency_key) OFFSET 0) AS b(state)),
        ready_at = CASE WHEN pgsched.is_limited(r.queue, r.concurrency_key) THEN clock_timestamp() END, held_until = NULL
    FROM free WHERE r.id = free.id RETURNING r.queue, r.state
), woken AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM admitted WHERE state = 'queued') q
)
SELECT (SELECT count(*) FROM admitted) AS admitted, (SELECT count(*) FROM woken) AS notified
