-- limit_admit: let these runs go, and wake the workers of their queues.
-- params: parallel arrays ids bigint[], queues text[], keys text[] (empty: none), by which their places were counted
-- returns: id of each that was let go; somebody holds the others, or they have ended, or got another key
-- locks: row locks on those runs, skipping locked ones
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::text::bigint[], %(queues)s::text[], %(keys)s::text[]) AS g(id, queue, key)
), free AS MATERIALIZED (
    SELECT found.id FROM given CROSS JOIN LATERAL (
        SELECT r.id FROM pgsched.runs r WHERE r.id = given.id AND r.state = 'waiting'
            AND r.queue = given.queue AND coalesce(r.concurrency_key, '') = given.key FOR UPDATE SKIP LOCKED
    ) found
), admitted AS (
    UPDATE pgsched.runs r SET state = 'queued', phase = 2 FROM free WHERE r.id = free.id RETURNING r.id, r.queue
), woken AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM admitted) q
)
SELECT id, (SELECT count(*) FROM woken) AS notified FROM admitted
