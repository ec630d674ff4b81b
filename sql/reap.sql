-- reap: give back those of these claims whose lease has passed, or bury them when their attempts are used up.
-- params: ids bigint[] (what lease_look has found), crash_limit int, before_s float8 (leases that had ended then, since
--         1970: what the clock says later is not believed, it may have been moved; null: now)
-- returns: (id, job_id, queue, state, attempt, crashes)
-- A limited run that is given back goes through admission again, in the place that it has had since it was claimable if
-- it became limited while it ran.
-- locks: FOR UPDATE on those runs, skipping any that a handler holds by assert_claim; the lease is re-checked under
--        the lock, and the token is cleared, so that the former owner is fenced from then on
WITH stale AS MATERIALIZED (
    SELECT id, token, attempt, worker_id, started_at, lease_until FROM pgsched.runs
    -- without its phase: the index of one phase would be read from end to end
    WHERE id = ANY (%(ids)s::text::bigint[]) AND state = 'running'
      AND lease_until < least(clock_timestamp(), to_timestamp(%(before_s)s::float8))
    FOR UPDATE SKIP LOCKED
), reaped AS (
    UPDATE pgsched.runs r SET
        state = CASE WHEN r.cancel_requested_at IS NOT NULL THEN 'cancelled'
                     WHEN r.attempt >= r.max_attempts OR r.crashes + 1 >= %(crash_limit)s THEN 'dead'
                     ELSE pgsched.back_in_line('queued', r.queue, r.concurrency_key) END,
        finished_at = CASE WHEN r.cancel_requested_at IS NOT NULL OR r.attempt >= r.max_attempts
                                OR r.crashes + 1 >= %(crash_limit)s THEN clock_timestamp() END,
        reason = CASE WHEN r.cancel_requested_at IS NOT NULL THEN left(r.cancel_reason, 10000)  -- runs_texts_size
                      WHEN r.attempt >= r.max_attempts AND r.max_attempts = 1 THEN 'its only attempt used'
                      WHEN r.attempt >= r.max_attempts THEN format('all %%s attempts used', r.max_attempts)
                      WHEN r.crashes + 1 >= %(crash_limit)s
                          THEN format('quarantined: %%s attempts took their worker down', r.crashes + 1) END,
        ready_at = CASE WHEN r.ready_at IS NULL AND pgsched.is_limited(r.queue, r.concurrency_key)
                   THEN r.available_at ELSE r.ready_at END,
        error = format('worker lost: the lease ended %%s without a heartbeat', s.lease_until),
        crashes = r.crashes + 1, token = NULL, lease_until = NULL
    FROM stale s WHERE r.id = s.id
    RETURNING r.id, r.job_id, r.queue, r.state, r.attempt, r.crashes, r.error, s.token, s.started_at, s.worker_id
), evidence AS (
    INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, worker_id, worker, error)
    SELECT id, token, attempt, 'crashed', started_at, worker_id,
        (SELECT w.name FROM pgsched.workers w WHERE w.id = worker_id), error
    FROM reaped
    ON CONFLICT (run_id, token) DO NOTHING
), woken AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM reaped WHERE state = 'queued') q
)
SELECT id, job_id, queue, state, attempt, crashes, (SELECT count(*) FROM woken) AS notified FROM reaped
