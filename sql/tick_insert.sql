-- tick_insert: make the rows of the decided slots, each job's policies copied into its runs.
-- params: parallel arrays job_ids bigint[], slots timestamptz[], states text[], available_ats timestamptz[],
--         expires_ats timestamptz[], reasons text[], covers_froms timestamptz[], covers_untils timestamptz[],
--         covers_counts bigint[], held_untils timestamptz[]
-- returns: (job_id, scheduled_at) of the rows that were made; a slot that already had its row is left alone
-- locks: none beyond the new rows
INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, state, finished_at, expires_at, held_until, reason, covers_from,
    covers_until, covers_count, queue, priority, kind, task, args, origin, owner, max_attempts, timeout, kill_after,
    backoff, backoff_base, backoff_max, backoff_jitter, options, tags)
SELECT j.id, s.slot, s.available_at, s.state,
    CASE WHEN s.state IN ('skipped', 'missed') THEN clock_timestamp() END, s.expires_at, s.held_until, s.reason,
    s.covers_from, s.covers_until, s.covers_count, j.queue, j.priority, j.kind, j.task, j.args, 'schedule', j.owner, j.max_attempts,
    j.timeout, nullif(j.kill_after, '10 seconds'), nullif(j.backoff, 'exponential'),
    nullif(j.backoff_base, '5 seconds'), nullif(j.backoff_max, '1 hour'), nullif(j.backoff_jitter, 0.2),
    pgsched.job_options(j), j.tags
FROM unnest(%(job_ids)s::bigint[], %(slots)s::timestamptz[], %(states)s::text[], %(available_ats)s::timestamptz[],
            %(expires_ats)s::timestamptz[], %(reasons)s::text[], %(covers_froms)s::timestamptz[],
            %(covers_untils)s::timestamptz[], %(covers_counts)s::bigint[],
            %(held_untils)s::timestamptz[])
    AS s(job_id, slot, state, available_at, expires_at, reason, covers_from, covers_until, covers_count, held_until)
JOIN pgsched.jobs j ON j.id = s.job_id
ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
RETURNING job_id, scheduled_at
