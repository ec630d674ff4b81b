-- Settlements: the outcomes of attempts, written under the fence of a claim's token.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: settle
-- record the outcomes of a batch of attempts, each fenced by (id, token, running).
-- params: parallel arrays ids bigint[], tokens uuid[], outcomes text[], retry_ins float8[] (seconds; null: never
--         again), results text[] (JSON), errors text[], tracebacks text[], log_tails text[] (results may be null as a
--         whole: no run has one); worker text; crash_limit int
-- returns: (n, state) of the claims that were this worker's: their position in the arrays, from 1, and the run's new
--          state. The others were settled before or are lost (settle_missing tells which)
-- 'released' gives back a claim that was never started. Like 'interrupted' it does not count as an attempt, but it
-- leaves no evidence either. A run without any begun attempt has not started yet, so its start deadline still applies.
-- 'snoozed' does not count as an attempt and leaves no evidence, but the run has started: it goes on at the time that
-- it asked for, and its start deadline no longer applies. 'crashed' took its process down, and counts towards the
-- quarantine like the death of a worker (reap). Any other attempt that ends by itself resets that count, and ends the
-- suspicion that its worker's death caused.
-- A limited run that is given back goes through admission again. If it became limited while it ran, it gets the
-- position of the time since which it was claimable. A released run gets back the tokens that it was charged (refunds).
-- The fence is one expression that the planner cannot estimate. So stale statistics cannot make it read all runs.
-- locks: row locks on those runs, in the order given: by id. Repeating the statement is harmless.
WITH settled AS (
    UPDATE pgsched.runs r SET
        (state, phase, ready_at, awaited) = (  -- without OFFSET 0 it would be asked for twice whether the run is limited
            SELECT b.state, pgsched.phase_of(b.state), CASE b.state WHEN 'waiting' THEN coalesce(r.ready_at, r.available_at) ELSE r.ready_at END,
                CASE WHEN r.awaited AND pgsched.phase_of(b.state) >= 3 /* ended */ THEN pgsched.notify('pgsched_ended', '')::boolean
                     ELSE r.awaited END
            FROM (SELECT pgsched.back_in_line(pgsched.settled_state(g.outcome, g.retry_in IS NOT NULL,
                r.attempt < r.max_attempts AND (g.outcome <> 'crashed' OR r.crashes + 1 < %(crash_limit)s::int),
                r.cancel_requested_at IS NOT NULL), r.queue, r.concurrency_key) OFFSET 0) AS b(state)),
        finished_at = CASE WHEN pgsched.settled_state(g.outcome, g.retry_in IS NOT NULL,
            r.attempt < r.max_attempts AND (g.outcome <> 'crashed' OR r.crashes + 1 < %(crash_limit)s::int),
            r.cancel_requested_at IS NOT NULL) NOT IN ('queued', 'scheduled')
                           THEN clock_timestamp() END,
        available_at = CASE WHEN g.outcome IN ('succeeded', 'interrupted', 'released') THEN r.available_at
                            ELSE clock_timestamp() + make_interval(secs => coalesce(g.retry_in, 0)) END,
        attempt = r.attempt - CASE WHEN g.outcome IN ('interrupted', 'released', 'snoozed') THEN 1 ELSE 0 END,
        crashes = CASE WHEN g.outcome = 'crashed' THEN r.crashes + 1
                       WHEN g.outcome IN ('interrupted', 'released') THEN r.crashes ELSE 0 END,
        suspect = CASE WHEN g.outcome IN ('interrupted', 'released') THEN r.suspect END,
        started_at = CASE WHEN g.outcome = 'released' AND (SELECT a.run_id FROM pgsched.attempts a
                                                           WHERE a.run_id = r.id LIMIT 1) IS NULL
                          THEN NULL ELSE r.started_at END,
        expires_at = CASE WHEN g.outcome <> 'snoozed' THEN r.expires_at END,
        lease_until = CASE WHEN g.outcome = 'succeeded' THEN r.lease_until END,
        worker_id = CASE WHEN g.outcome = 'released' THEN NULL ELSE r.worker_id END,
        result = g.result::jsonb,
        error = CASE g.outcome WHEN 'succeeded' THEN NULL WHEN 'snoozed' THEN r.error
                               ELSE coalesce(g.error, r.error) END,
        reason = CASE
            WHEN g.outcome = 'succeeded' THEN NULL
            WHEN r.cancel_requested_at IS NOT NULL THEN left(r.cancel_reason, 10000)  -- runs_texts_size
            WHEN g.outcome IN ('cancelled', 'interrupted', 'released', 'snoozed') THEN g.error
            WHEN g.retry_in IS NULL THEN 'failed for good'
            WHEN r.attempt >= r.max_attempts AND r.max_attempts = 1 THEN 'its only attempt used'
            WHEN r.attempt >= r.max_attempts THEN format('all %%s attempts used', r.max_attempts)
            WHEN g.outcome = 'crashed' AND r.crashes + 1 >= %(crash_limit)s::int
                THEN format('quarantined: %%s attempts took their process down', r.crashes + 1) END
    FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[], %(outcomes)s::text[], %(retry_ins)s::float8[],
                %(results)s::text[], %(errors)s::text[], %(tracebacks)s::text[], %(log_tails)s::text[])
        WITH ORDINALITY AS g(id, token, outcome, retry_in, result, error, traceback, log_tail, n)
    WHERE r.id = g.id AND CASE WHEN r.token = g.token AND r.state = 'running' THEN true END
    RETURNING g.n, r.id, r.token, r.state, r.queue, r.job_id, r.attempt, r.started_at, r.expires_at, r.worker_id,
        r.has_children, r.ready_at, g.outcome, g.error, g.traceback, g.log_tail
), evidence AS (
    INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, worker_id, worker, error, traceback,
                                  log_tail)
    SELECT id, token, attempt + CASE WHEN outcome = 'interrupted' THEN 1 ELSE 0 END, outcome, started_at, worker_id,
           %(worker)s, error, traceback, log_tail
    FROM settled WHERE outcome NOT IN ('succeeded', 'released', 'snoozed')
    ON CONFLICT (run_id, token) DO NOTHING
), refunded AS (
    INSERT INTO pgsched.refunds (run_id, claimed_at, queue, concurrency_key)
    -- a statement does not see its own writes: this is the row as it was before
    SELECT s.id, o.started_at, o.queue, o.concurrency_key FROM settled s CROSS JOIN LATERAL (
        SELECT r.started_at, r.ready_at, r.queue, r.concurrency_key FROM pgsched.runs r WHERE r.id = s.id OFFSET 0) o
    WHERE s.outcome = 'released' AND o.ready_at IS NOT NULL AND o.started_at IS NOT NULL AND (
        EXISTS (SELECT FROM pgsched.queues q WHERE q.name = o.queue AND q.rate IS NOT NULL)
        OR EXISTS (SELECT FROM pgsched.limit_of(o.concurrency_key) l WHERE l.rate IS NOT NULL))
    ON CONFLICT DO NOTHING
), woken AS (
    SELECT pgsched.notify('pgsched_runs', pgsched.queue_mark(queue)) FROM (SELECT DISTINCT queue FROM settled WHERE state = 'queued') q
    UNION ALL
    SELECT pgsched.tell_leader() WHERE EXISTS (
        SELECT FROM settled s WHERE s.state IN ('scheduled', 'waiting') OR s.has_children OR s.ready_at IS NOT NULL
            OR s.expires_at IS NOT NULL AND s.started_at IS NULL OR s.job_id IS NOT NULL AND EXISTS (
            SELECT FROM pgsched.runs w WHERE w.job_id = s.job_id AND w.phase < 3 /* open */ AND w.state = 'waiting'))
)
SELECT n, state, (SELECT count(*) FROM woken) AS notified FROM settled


-- name: settle_lock
-- lock the claims of a batch whose rows no other transaction has locked; the others are left for later. It runs before
-- `settle` in the same transaction, if a locked row was met lately.
-- params: parallel arrays ids bigint[], tokens uuid[]
-- returns: (n: position in the arrays, from 1; locked boolean: another transaction has the row of this claim locked),
--          for claims that are still this worker's
-- locks: row locks on those runs, skipping locked ones
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[]) WITH ORDINALITY AS g(id, token, n)
), free AS MATERIALIZED (
    SELECT g.n FROM given g CROSS JOIN LATERAL (
        SELECT FROM pgsched.runs r
        WHERE r.id = g.id AND r.token = g.token AND r.state = 'running' FOR NO KEY UPDATE OF r SKIP LOCKED
    ) found
)
SELECT n, false AS locked FROM free
UNION ALL
SELECT g.n, true FROM given g CROSS JOIN LATERAL (
    SELECT FROM pgsched.runs r WHERE (r.id, r.token) = (g.id, g.token) AND r.state = 'running' OFFSET 0
) held WHERE g.n NOT IN (SELECT n FROM free)


-- name: settle_missing
-- return what became of settlements that `settle` did not record.
-- params: parallel arrays ids bigint[], tokens uuid[]
-- returns: (n, verdict), n the position in the arrays, from 1: 'repeated' if this very settlement had arrived before;
--          'lost' if another attempt owns the run or the claim was taken away (a late write of a former owner)
-- locks: none
SELECT g.n, CASE WHEN r.token = g.token AND r.state <> 'running' THEN 'repeated' ELSE 'lost' END AS verdict
FROM unnest(%(ids)s::text::bigint[], %(tokens)s::text::uuid[]) WITH ORDINALITY AS g(id, token, n)
LEFT JOIN pgsched.runs r ON r.id = g.id


-- name: settle_succeeded
-- record attempts that succeeded, each fenced by (id, token, running). It does what `settle` does, for the one outcome
-- that leaves no evidence.
-- params: ids bigint[] (ascending, none twice); firsts bigint[], tokens uuid[]: for each range of ids with one token,
--         its first id and that token; results jsonb, an array as long as ids (null: no run has one)
-- returns: no rows: returning each one would cost more than to look again for those that were not this worker's. The
--          number of rows that it wrote is how many were
-- locks: row locks on those runs, in the order given. Repeating the statement is harmless.
-- One pass over the key's index finds all ids. A row's position in an array is found by bisection (width_bucket).
-- The reason is always null, as is the result of tell_leader, which notifies the leader of ends that may free other
-- runs. So is that of notify, which tells those that wait for an awaited run, and ends that mark.
UPDATE pgsched.runs r SET state = 'succeeded', phase = 3 /* ended well */, finished_at = clock_timestamp(), error = NULL,
    suspect = NULL, awaited = CASE WHEN r.awaited THEN pgsched.notify('pgsched_ended', '')::boolean END,
    reason = CASE WHEN r.has_children OR r.ready_at IS NOT NULL OR r.job_id IS NOT NULL AND EXISTS (
            SELECT FROM pgsched.runs w WHERE w.job_id = r.job_id AND w.phase < 3 /* open */ AND w.state = 'waiting')
        THEN pgsched.tell_leader() END,
    result = CASE WHEN %(results)s::jsonb IS NOT NULL
                  THEN nullif(%(results)s::jsonb -> width_bucket(r.id, %(ids)s::bigint[]) - 1, 'null') END
WHERE r.id = ANY (%(ids)s::bigint[])
  AND CASE WHEN r.state = 'running' AND r.token = (%(tokens)s::uuid[])[width_bucket(r.id, %(firsts)s::bigint[])]
           THEN true END
