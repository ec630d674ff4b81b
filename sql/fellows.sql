-- fellows: how many workers look for the same work as this one and have room for it, itself among them.
-- params: worker_id bigint, most int: more are not counted
-- returns: n int, by everybody's last heartbeat; 0 when this worker is not known
-- locks: none
SELECT count(*)::int AS n FROM (
    SELECT FROM pgsched.workers me
    JOIN pgsched.workers w ON w.kinds = me.kinds AND w.tasks = me.tasks AND w.queues IS NOT DISTINCT FROM me.queues
    WHERE me.id = %(worker_id)s AND w.stopped_at IS NULL AND w.stopping_at IS NULL AND w.blocked_at IS NULL
      AND w.pooler IS DISTINCT FROM 'transaction' AND w.running < w.concurrency
      AND w.seen_at > clock_timestamp() - w.lease / 2  -- each beats three times a lease
    LIMIT %(most)s
) f
