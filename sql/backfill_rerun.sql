-- backfill_rerun: ended runs of slots run again, as the job is now: the same rows, with further attempts. A success that
-- is repeated leaves its attempt as evidence, as every other attempt has.
-- params: id bigint (of the backfill), job_id bigint, priority smallint, ids bigint[]
-- returns: id of each run that is queued again
-- locks: those runs, and FOR KEY SHARE on the job against its deletion; failing at once when somebody else has one: the
--        leader has other duties than to wait for it, and the batch is tried again. One that somebody revived meanwhile
--        is left alone.
WITH old AS MATERIALIZED (
    SELECT r.id, r.state, r.token, r.attempt, r.started_at, r.finished_at, r.worker_id
    FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE r.id = ANY (%(ids)s::bigint[]) AND r.job_id = %(job_id)s AND r.phase >= 3
    FOR UPDATE OF r NOWAIT FOR KEY SHARE OF j NOWAIT
), evidence AS (
    INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, finished_at, worker_id, worker)
    SELECT o.id, o.token, o.attempt, 'succeeded', o.started_at, o.finished_at, o.worker_id, w.name
    FROM old o LEFT JOIN pgsched.workers w ON w.id = o.worker_id
    WHERE o.state = 'succeeded' AND o.token IS NOT NULL
    ON CONFLICT (run_id, token) DO NOTHING
), again AS (
    UPDATE pgsched.runs r SET
        state = pgsched.back_in_line('queued', j.queue,
            pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, j.args)),
        concurrency_key = pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, j.args), ready_at = clock_timestamp(),
        finished_at = NULL, token = NULL, lease_until = NULL,
        available_at = clock_timestamp(), crashes = 0, cancel_requested_at = NULL, cancel_reason = NULL, reason = NULL,
        expires_at = NULL, held_until = NULL, result = NULL, backfill_id = %(id)s, origin = 'backfill',
        priority = %(priority)s,
        max_attempts = least(1000, r.attempt + j.max_attempts), queue = j.queue, kind = j.kind, task = j.task,
        args = j.args, owner = j.owner, timeout = j.timeout, kill_after = nullif(j.kill_after, '10 seconds'),
        backoff = nullif(j.backoff, 'exponential'), backoff_base = nullif(j.backoff_base, '5 seconds'),
        backoff_max = nullif(j.backoff_max, '1 hour'), backoff_jitter = nullif(j.backoff_jitter, 0.2),
        options = pgsched.job_options(j), tags = j.tags,
        has_children = (SELECT true FROM pgsched.dependencies d WHERE d.parent_id = r.id AND d.state = 'open' LIMIT 1),
        -- what its row says of the other slots of a stretch stays true of them
        covers_state = CASE WHEN r.covers_from < r.covers_until THEN coalesce(r.covers_state, r.state) END,
        covers_reason = CASE WHEN r.covers_state IS NOT NULL THEN r.covers_reason
            WHEN r.covers_from < r.covers_until THEN r.reason END
    FROM old JOIN pgsched.jobs j ON j.id = %(job_id)s WHERE r.id = old.id
    RETURNING r.id, r.queue, r.state
)
SELECT id, CASE state WHEN 'queued' THEN pg_notify('pgsched_runs', queue)
    ELSE pg_notify('pgsched_leader', 'runs') END AS woken FROM again
