-- claim_ahead: take up to `n` of the runs that this very transaction has made, for the worker of the same process. What
-- a run may be claimed for is as in `claim`; who makes them before their instant commits at that instant.
-- params: ids bigint[], n int, workers int: among how many what it may claim is shared, queues text[] (null: all), token
--         uuid, worker_id bigint, lease_s float8, kinds text[], tasks text[], at timestamptz: no attempt starts before it
-- returns: as claim
-- locks: none that anybody could wait for: nobody else sees these rows
WITH picked AS MATERIALIZED (
    SELECT shared.id FROM (
        SELECT found.id, count(*) OVER () / greatest(%(workers)s, 1) AS share,
            row_number() OVER (ORDER BY found.priority, found.available_at, found.id) AS nth
        FROM unnest(%(ids)s::text::bigint[]) AS i(id)
        CROSS JOIN LATERAL (
            SELECT id, priority, available_at FROM pgsched.runs
            -- without its phase: an index of one phase would be read from end to end for each run
            WHERE id = i.id AND state = 'queued'
              AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
              AND (kind = ANY (%(kinds)s::text[]) OR kind = 'python' AND task = ANY (%(tasks)s::text[]))
              AND NOT EXISTS (SELECT FROM pgsched.pauses p
                              WHERE (p.what = 'all' OR p.what = 'task' AND p.name = task
                                     OR p.what IN ('queue', 'limit') AND p.name = queue)
                                AND coalesce(p.resume_at > clock_timestamp(), true))
              AND (expires_at IS NULL OR expires_at > clock_timestamp())
            OFFSET 0
        ) found
    ) shared WHERE nth <= least(share, %(n)s)
)
UPDATE pgsched.runs r
SET state = 'running', token = %(token)s, worker_id = %(worker_id)s, attempt = r.attempt + 1,
    started_at = greatest(clock_timestamp(), %(at)s::timestamptz),
    lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE r.id = ANY (ARRAY(SELECT id FROM picked))
RETURNING r.id, r.attempt, r.max_attempts, r.queue, r.priority, nullif(r.kind, 'python'), r.task, r.args,
    r.job_id, r.scheduled_at, r.available_at::text, r.owner, r.timeout, r.kill_after, r.backoff, r.backoff_base, r.backoff_max, r.backoff_jitter,
    r.options
