-- claim_share: what is paused now, and among how many workers the runs of a batch are shared.
-- params: queues text[] (null: all): those that a worker serves
-- returns: (pauses text: all that is paused, changes with any of it and is empty when nothing is; workers int: those alive
--          that take more and serve one of the queues)
-- locks: none
SELECT (SELECT coalesce(string_agg(p::text, ',' ORDER BY p.what, p.name), '') FROM pgsched.pauses p) AS pauses,
    (SELECT count(*)::int FROM pgsched.workers w
     WHERE w.stopped_at IS NULL AND w.stopping_at IS NULL AND w.seen_at > clock_timestamp() - w.lease
       AND (w.queues IS NULL OR %(queues)s::text[] IS NULL OR w.queues && %(queues)s::text[])) AS workers
