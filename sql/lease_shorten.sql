-- lease_shorten: after the clock was moved back: claims that would be believed for longer than their worker's lease end
-- with a lease from now. Whoever lives renews them before.
-- params: ids bigint[]: what lease_look has found
-- returns: nothing; the number of rows says how many
-- locks: row locks on those runs, skipping those that others hold
WITH long AS MATERIALIZED (
    SELECT r.id, l.lease FROM pgsched.runs r CROSS JOIN LATERAL (
        SELECT coalesce((SELECT w.lease FROM pgsched.workers w WHERE w.id = r.worker_id), interval '1 minute') AS lease
    ) l
    WHERE r.id = ANY (%(ids)s::text::bigint[]) AND r.state = 'running' AND r.lease_until > clock_timestamp() + l.lease
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE pgsched.runs r SET lease_until = clock_timestamp() + long.lease FROM long WHERE r.id = long.id
