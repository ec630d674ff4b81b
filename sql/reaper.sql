-- Expired claims, and runs that may no longer start.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: runs_expire
-- end runs that may no longer start. A run whose start deadline has passed is missed. A slot that waited in vain for an
-- earlier run (retry_within) is skipped, as it would have been without waiting. The earlier bound counts. A run that
-- has started once is not bound any more: it loses its deadline, so that this statement finds it once and not in every
-- round. (`started_at IS NULL` in the predicate of runs_expiring would do the same, but then no claim could be a
-- heap-only update.)
-- params: n int, aside bigint[] as text (runs to leave out), act boolean (false: only return the first), expires_s
--         float8, held_s float8 (since 1970: runs whose bound is older are left out)
-- returns: done bigint: how many ended; first bigint: one of the first runs
-- locks: FOR UPDATE on those runs, skipping locked ones
WITH late AS MATERIALIZED (
    -- the clock is asked once, here and below, and bounds the scan: all bounds that are to come would be read else
    SELECT id, started_at IS NOT NULL AS started FROM pgsched.runs
    WHERE phase < 3 /* open */ AND expires_at <= (SELECT clock_timestamp()) AND state <> 'running'
      AND expires_at >= to_timestamp(%(expires_s)s::float8) AND id <> ALL (%(aside)s::text::bigint[])
    ORDER BY expires_at LIMIT %(n)s FOR UPDATE SKIP LOCKED
), in_vain AS MATERIALIZED (
    SELECT id FROM pgsched.runs
    WHERE phase = 0 /* waiting */ AND held_until <= (SELECT clock_timestamp()) AND started_at IS NULL
      AND held_until < coalesce(expires_at, 'infinity') AND held_until >= to_timestamp(%(held_s)s::float8)
      AND id <> ALL (%(aside)s::text::bigint[])
    ORDER BY held_until LIMIT %(n)s FOR UPDATE SKIP LOCKED
), unbound AS (
    UPDATE pgsched.runs r SET expires_at = NULL FROM late
    WHERE r.id = late.id AND late.started AND %(act)s::boolean
), ended AS (
    SELECT coalesce(late.id, in_vain.id) AS id, in_vain.id IS NOT NULL AS in_vain
    FROM (SELECT id FROM late WHERE NOT started) late FULL JOIN in_vain ON in_vain.id = late.id
), done AS (
    UPDATE pgsched.runs r SET state = CASE WHEN ended.in_vain THEN 'skipped' ELSE 'missed' END,
        finished_at = clock_timestamp(),
        reason = CASE WHEN ended.in_vain THEN format('%%s, nor by %%s (retry_within)', r.reason, r.held_until)
                      WHEN EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = r.job_id AND j.start_deadline IS NOT NULL)
                          THEN format('start_deadline passed: not started by %%s', r.expires_at)
                      ELSE format('expired: not started by %%s', r.expires_at) END
    FROM ended WHERE r.id = ended.id AND %(act)s::boolean
    RETURNING r.id
)
SELECT (SELECT count(*) FROM done) AS done, coalesce((SELECT id FROM late LIMIT 1), (SELECT id FROM in_vain LIMIT 1)) AS first


-- name: lease_look
-- return claims whose lease has ended, and claims that last longer than their worker's lease (the clock went back). No
-- index has the lease, so that a claim changes no index entry. So every queued or running run is read, and recent dead
-- entries if xmin is pinned.
-- params: n int (at most this many), before_s float8 (leases that had ended by then, since 1970; null: now), long
--         boolean (whether to look for claims that last too long)
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
-- let claims that last longer than their worker's lease end one lease from now, after the clock went back. Live workers
-- renew them before that.
-- params: ids bigint[]: what lease_look has found
-- returns: nothing; the number of rows says how many
-- locks: row locks on those runs, skipping locked ones
WITH long AS MATERIALIZED (
    SELECT r.id, l.lease FROM pgsched.runs r CROSS JOIN LATERAL (
        SELECT coalesce((SELECT w.lease FROM pgsched.workers w WHERE w.id = r.worker_id), interval '1 minute') AS lease
    ) l
    WHERE r.id = ANY (%(ids)s::text::bigint[]) AND r.state = 'running' AND r.lease_until > clock_timestamp() + l.lease
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE pgsched.runs r SET lease_until = clock_timestamp() + long.lease FROM long WHERE r.id = long.id


-- name: lease_longest
-- return the shortest and the longest lease of this fleet's workers.
-- params: none
-- returns: (shortest float8, longest float8): the leases of workers seen lately, in seconds; null if there are none
-- locks: none
SELECT extract(epoch FROM min(lease))::float8 AS shortest, extract(epoch FROM max(lease))::float8 AS longest
FROM pgsched.workers
-- counted back from the newest: the clock may just have been moved
WHERE stopped_at IS NULL AND seen_at > (SELECT max(seen_at) FROM pgsched.workers) - interval '1 day'


-- name: reap
-- take back those of these claims whose lease has ended. An attempt that had begun counts, and the run is dead when no
-- attempt is left, or after too many in a row that took their worker down. An attempt that is not known to have begun
-- does not count. In both cases the run is suspect until an attempt ends by itself: it is claimed alone.
-- params: ids bigint[] (what lease_look has found), crash_limit int, before_s float8 (leases that had ended by then,
--         since 1970; null: now. A later clock is not trusted, because it may have been moved)
-- returns: (id, job_id, queue, state, attempt, crashes, begun boolean)
-- An attempt had begun if the worker's last heartbeat reported it, or if the run was claimed for a free place. Suspect
-- runs, and runs with one attempt, which must not run twice, are claimed for a free place only. An attempt that may
-- have begun unseen leaves evidence of that, and the start deadline applies again.
-- A limited run that is given back goes through admission again. If it became limited while it ran, it gets the
-- position of the time since which it was claimable.
-- locks: FOR UPDATE on those runs, skipping any that a handler has locked by assert_claim. The lease is checked again
--        under the lock, and the token is cleared, so that the former owner is fenced from then on
WITH stale AS MATERIALIZED (
    SELECT id, token, attempt, worker_id, started_at, lease_until,
        (begun OR suspect OR max_attempts = 1) IS TRUE AS begun,
        attempt >= max_attempts OR crashes + 1 >= %(crash_limit)s AS is_last
    FROM pgsched.runs
    -- without its phase: the index of one phase would be read from end to end
    WHERE id = ANY (%(ids)s::text::bigint[]) AND state = 'running'
      AND lease_until < least(clock_timestamp(), to_timestamp(%(before_s)s::float8))
    FOR UPDATE SKIP LOCKED
), reaped AS (
    UPDATE pgsched.runs r SET
        state = CASE WHEN r.cancel_requested_at IS NOT NULL THEN 'cancelled'
                     WHEN s.begun AND s.is_last THEN 'dead'
                     ELSE pgsched.back_in_line('queued', r.queue, r.concurrency_key) END,
        finished_at = CASE WHEN r.cancel_requested_at IS NOT NULL OR s.begun AND s.is_last THEN clock_timestamp() END,
        reason = CASE WHEN r.cancel_requested_at IS NOT NULL THEN left(r.cancel_reason, 10000)  -- runs_texts_size
                      WHEN NOT (s.begun AND s.is_last) THEN NULL
                      WHEN r.attempt >= r.max_attempts AND r.max_attempts = 1 THEN 'its only attempt used'
                      WHEN r.attempt >= r.max_attempts THEN format('all %%s attempts used', r.max_attempts)
                      ELSE format('quarantined: %%s attempts took their worker down', r.crashes + 1) END,
        ready_at = CASE WHEN r.ready_at IS NULL AND pgsched.is_limited(r.queue, r.concurrency_key)
                   THEN r.available_at ELSE r.ready_at END,
        error = format('worker lost: the lease ended %%s without a heartbeat', s.lease_until)
            || CASE WHEN s.begun THEN '' ELSE '; whether the attempt had begun is not known, and it does not count' END,
        attempt = r.attempt - CASE WHEN s.begun THEN 0 ELSE 1 END,
        crashes = r.crashes + CASE WHEN s.begun THEN 1 ELSE 0 END,
        started_at = CASE WHEN s.begun OR (SELECT a.run_id FROM pgsched.attempts a WHERE a.run_id = r.id LIMIT 1) IS NOT NULL
                          THEN r.started_at END,
        suspect = true, token = NULL, lease_until = NULL
    FROM stale s WHERE r.id = s.id
    RETURNING r.id, r.job_id, r.queue, r.state, r.attempt, r.crashes, r.error, s.token, s.started_at, s.worker_id,
        s.begun, s.attempt AS made
), evidence AS (
    INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, worker_id, worker, error)
    SELECT id, token, made, CASE WHEN begun THEN 'crashed' ELSE 'interrupted' END, started_at, worker_id,
        (SELECT w.name FROM pgsched.workers w WHERE w.id = worker_id), error
    FROM reaped
    ON CONFLICT (run_id, token) DO NOTHING
), woken AS (
    SELECT pgsched.notify('pgsched_runs', pgsched.queue_mark(queue)) FROM (SELECT DISTINCT queue FROM reaped WHERE state = 'queued') q
)
SELECT id, job_id, queue, state, attempt, crashes, begun, (SELECT count(*) FROM woken) AS notified FROM reaped
