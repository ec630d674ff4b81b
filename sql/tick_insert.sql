-- tick_insert: make the rows of the decided slots, each job's policies copied into its runs.
-- params: parallel arrays, one element for a slot that many jobs may share: job_ids text[] (each an array literal),
--         slots timestamptz[], states text[], available_ats timestamptz[] (null: at its slot), expires_ats timestamptz[],
--         reasons text[], covers_froms timestamptz[], covers_untils timestamptz[], covers_counts bigint[],
--         held_untils timestamptz[] (an array that is too short goes on with nulls)
-- returns: (job_id, state, id) of the new rows, one for each slot. One slot that has its row already refuses them all
-- The constraint on (job_id, scheduled_at) refuses them. With ON CONFLICT each slot would be looked up and each row be a
-- speculative one, a tenth of what it costs (bench/NOTES.md): `guard` has it, and makes nothing, so that this is refused
-- as a whole where there is no such constraint.
-- The trigger that judges and announces each new row costs a third of what making it does. Where it would find nothing (a
-- Python task without limits that takes most defaults) that is found here, and the workers are told once for all such rows:
-- by a notification and not by pgsched.tell_workers, which leaves it to others where they overlap, and whom it wakes looks
-- again only for some milliseconds. This transaction may take longer.
-- locks: none beyond the new rows
WITH guard AS (
    INSERT INTO pgsched.runs (task) SELECT 'none' WHERE false
    ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
), made AS (
    INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, state, finished_at, expires_at, held_until, reason, covers_from,
        covers_until, covers_count, queue, priority, kind, task, args, origin, owner, max_attempts, timeout, kill_after,
        backoff, backoff_base, backoff_max, backoff_jitter, options, tags, concurrency_key, checked)
    SELECT j.id, s.slot,
        -- a batch that is prepared ahead of its instant is claimable when it commits, not scheduled for later
        CASE WHEN j.after_jobs <> '{}' AND s.state IN ('queued', 'waiting') THEN '8998-01-01 00:00Z'
             WHEN s.state = 'queued' THEN least(s.starts, (SELECT clock_timestamp())) ELSE s.starts END,
        CASE WHEN j.after_jobs <> '{}' AND s.state = 'queued' THEN 'waiting' ELSE s.state END,
        CASE WHEN s.state IN ('skipped', 'missed') THEN clock_timestamp() END, s.expires_at, s.held_until, s.reason,
        s.covers_from, s.covers_until, s.covers_count, j.queue, j.priority, j.kind, j.task, j.args, 'schedule', j.owner, j.max_attempts,
        j.timeout, nullif(j.kill_after, '10 seconds'), nullif(j.backoff, 'exponential'),
        nullif(j.backoff_base, '5 seconds'), nullif(j.backoff_max, '1 hour'), nullif(j.backoff_jitter, 0.2),
        -- null for the other kinds; read once more, because a job that is named as a whole is copied as a whole, each
        CASE WHEN j.after_jobs <> '{}' AND s.state IN ('queued', 'waiting')
             THEN (SELECT pgsched.held_options(o, s.starts, s.state = 'waiting') FROM pgsched.jobs o WHERE o.id = j.id)
             WHEN j.kind IN ('command', 'shell')
             THEN (SELECT pgsched.job_options(o) FROM pgsched.jobs o WHERE o.id = j.id) END, j.tags,
        CASE WHEN j.concurrency_key IS NOT NULL OR j.concurrency_limit IS NOT NULL
            THEN pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, j.args) END,
        CASE WHEN s.state = 'queued' AND j.kind = 'python' AND coalesce(j.after_jobs, '{}') = '{}'
                AND j.concurrency_key IS NULL AND j.concurrency_limit IS NULL
                AND (j.kill_after, j.backoff, j.backoff_base, j.backoff_max, j.backoff_jitter)
                    = ('10 seconds', 'exponential', '5 seconds', '1 hour', 0.2)
                AND coalesce(pg_column_size(j.tags), 0) <= 65536  -- run_size_error
                AND s.slot >= '1970-01-01 00:00Z' AND coalesce(s.expires_at, s.slot) <= '9000-01-01 00:00Z'
            THEN pgsched.is_plain(j.task, j.args, j.queue, j.priority, j.max_attempts, j.timeout) END
    FROM (SELECT u.*, coalesce(u.available_at, u.slot) AS starts
          FROM unnest(%(job_ids)s::text[], %(slots)s::timestamptz[], %(states)s::text[], %(available_ats)s::timestamptz[],
                %(expires_ats)s::timestamptz[], %(reasons)s::text[], %(covers_froms)s::timestamptz[],
                %(covers_untils)s::timestamptz[], %(covers_counts)s::bigint[], %(held_untils)s::timestamptz[])
              AS u(job_ids, slot, state, available_at, expires_at, reason, covers_from, covers_until, covers_count,
                   held_until)) s
    CROSS JOIN LATERAL unnest(s.job_ids::bigint[]) AS i(id)
    JOIN pgsched.jobs j ON j.id = i.id
    RETURNING job_id, state, id, queue, checked
), told AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM made WHERE checked) q
    WHERE pgsched.may_be_asleep()
)
-- the count is there for its CTE: one that only selects is not run at all where nothing asks for its rows
SELECT job_id, state, id FROM made WHERE (SELECT count(*) FROM told) IS NOT NULL
