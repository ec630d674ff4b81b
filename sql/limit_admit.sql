-- limit_admit: let these runs go, and wake the workers of their queues. They have paid for no further start (the token
-- goes: see settle, 'released').
-- params: ids bigint[]
-- returns: id of each that was let go; somebody holds the others, or they have ended
-- locks: row locks on those runs, skipping locked ones
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::text::bigint[]) AS g(id)
), free AS MATERIALIZED (
    SELECT found.id FROM given CROSS JOIN LATERAL (
        SELECT r.id FROM pgsched.runs r WHERE r.id = given.id AND r.state = 'waiting' FOR UPDATE SKIP LOCKED
    ) found
), admitted AS (
    UPDATE pgsched.runs r SET state = 'queued', token = NULL FROM free WHERE r.id = free.id RETURNING r.id, r.queue
), woken AS (
    SELECT pg_notify('pgsched_runs', queue) FROM (SELECT DISTINCT queue FROM admitted) q
)
SELECT id, (SELECT count(*) FROM woken) AS notified FROM admitted
