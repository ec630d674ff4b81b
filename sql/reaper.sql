-- Claims that are not believed any more.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: runs_expire
-- what may no longer start ends. A run whose start deadline passed is missed; a slot that waited for an
-- earlier run (retry_within) in vain is skipped, as it would have been without waiting. The earlier bound counts. What
-- has started once is not bound any more.
-- params: n int
-- returns: nothing; the number of rows says how many
-- locks: FOR UPDATE on those runs, skipping locked ones
WITH late AS MATERIALIZED (
    -- the clock is asked once, here and below, and bounds the scan: all bounds that are to come would be read else
    SELECT id FROM pgsched.runs
    WHERE phase < 3 /* open */ AND expires_at <= (SELECT clock_timestamp()) AND state <> 'running' AND started_at IS NULL
    ORDER BY expires_at LIMIT %(n)s FOR UPDATE SKIP LOCKED
), in_vain AS MATERIALIZED (
    SELECT id FROM pgsched.runs
    WHERE phase = 0 /* waiting */ AND held_until <= (SELECT clock_timestamp()) AND started_at IS NULL
      AND held_until < coalesce(expires_at, 'infinity')
    ORDER BY held_until LIMIT %(n)s FOR UPDATE SKIP LOCKED
), ended AS (
    SELECT coalesce(late.id, in_vain.id) AS id, in_vain.id IS NOT NULL AS in_vain
    FROM late FULL JOIN in_vain ON in_vain.id = late.id
)
UPDATE pgsched.runs r SET state = CASE WHEN ended.in_vain THEN 'skipped' ELSE 'missed' END,
    finished_at = clock_timestamp(),
    reason = CASE WHEN ended.in_vain THEN format('%%s, nor by %%s (retry_within)', r.reason, r.held_until)
                  ELSE format('start_deadline passed: not started by %%s', r.expires_at) END
FROM ended WHERE r.id = ended.id


-- name: lease_look
-- claims whose lease has ended, and claims that would be believed for longer than their worker's lease (the
-- clock was moved back). No index names a lease, so that claiming moves no index entry: every run that is queued or
-- running is read, and what was claimed of late where something pins xmin.
-- params: n int (at most this many), before_s float8 (leases that had ended then, since 1970; null: now), long boolean
--         (whether to look for those that are too long)
-- returns: (id, expired boolean)
-- locks: none
SELECT r.id, r.lease_until < clock_timestamp() AS expired
FROM pgsched.runs r
WHERE r.phase = 2 /* claimable */ AND r.state = 'running'
  AND (r.lease_until < least(clock_timestamp(), to_timestamp(%(before_s)s::float8))
       OR %(long)s::boolean AND r.lease_until > clock_timestamp() + coalesce(
           (SELECT w.lease FROM pgsched.workers w WHERE w.id = r.worker_id), interval '1 minute'))
LIMIT %(n)s


-- name: lease_shorten
-- after the clock was moved back: claims that would be believed for longer than their worker's lease end
-- with a lease from now. Whoever lives renews them before.
-- params: ids bigint[]: what lease_look has found
-- returns: nothing; the number of rows says how many
-- locks: row locks on those runs, skipping those that others hold
WITH long AS MATERIALIZED (
    SELECT r.id, l.lease FROM pgsched.runs r CROSS JOIN LATERAL (
        SELECT coalesce((SELECT w.lease FROM pgsched.workers w WHERE w.id = r.worker_id), interval '1 minute') AS lease
    ) l
    WHERE r.id = ANY (%(ids)s::text::bigint[]) AND r.state = 'running' AND r.lease_until > clock_timestamp() + l.lease
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE pgsched.runs r SET lease_until = clock_timestamp() + long.lease FROM long WHERE r.id = long.id


-- name: lease_longest
-- how long claims are believed in this fleet.
-- params: none
-- returns: (shortest float8, longest float8): the leases of workers seen lately, in seconds; null when there is none
-- locks: none
SELECT extract(epoch FROM min(lease))::float8 AS shortest, extract(epoch FROM max(lease))::float8 AS longest
FROM pgsched.workers
-- counted back from the newest: the clock may just have been moved
WHERE stopped_at IS NULL AND seen_at > (SELECT max(seen_at) FROM pgsched.workers) - interval '1 day'


-- name: reap
-- give back those of these claims whose lease has passed, or bury them when their attempts are used up.
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
