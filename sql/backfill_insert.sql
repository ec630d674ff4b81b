-- backfill_insert: runs for slots that have no row yet, as the job is now. The high-water mark is left alone.
-- params: id bigint (of the backfill), job_id bigint, priority smallint, slots timestamptz[]
-- returns: id of each row that was made
-- locks: FOR KEY SHARE on the job, so that a deletion sees the new rows or they are not made; failing at once when
--        somebody is deleting or renaming it: the batch is tried again
INSERT INTO pgsched.runs (job_id, scheduled_at, backfill_id, priority, origin, queue, kind, task, args, owner,
    max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, options, tags, concurrency_key)
SELECT j.id, s.slot, %(id)s, %(priority)s, 'backfill', j.queue, j.kind, j.task, j.args, j.owner, j.max_attempts,
    j.timeout, nullif(j.kill_after, '10 seconds'), nullif(j.backoff, 'exponential'),
    nullif(j.backoff_base, '5 seconds'), nullif(j.backoff_max, '1 hour'), nullif(j.backoff_jitter, 0.2),
    pgsched.job_options(j), j.tags, pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, j.args)
FROM unnest(%(slots)s::timestamptz[]) WITH ORDINALITY AS s(slot, n) JOIN pgsched.jobs j ON j.id = %(job_id)s
ORDER BY s.n FOR KEY SHARE OF j NOWAIT
ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
RETURNING id
