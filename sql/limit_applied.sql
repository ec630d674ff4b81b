-- limit_applied: nothing is admitted beyond these limits any more, and nothing can be. What of a queue was held back
-- because it got its first limit is claimed again. One that was changed again meanwhile is left for the next round.
-- params: parallel arrays queues text[] (null: a limit), names text[], versions text[] (as in limit_unapplied)
-- returns: applied bigint
-- locks: those rows, skipping locked ones
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(queues)s::text[], %(names)s::text[], %(versions)s::text[]) AS g(queue, name, version)
), q AS (
    UPDATE pgsched.queues SET applied_at = clock_timestamp() WHERE name IN (
        SELECT t.name FROM given g JOIN pgsched.queues t ON t.name = g.queue
        WHERE t.applied_at IS NULL AND t.xmin::text = g.version FOR UPDATE OF t SKIP LOCKED)
    RETURNING name
), l AS (
    UPDATE pgsched.limits SET applied_at = clock_timestamp() WHERE name IN (
        SELECT t.name FROM given g JOIN pgsched.limits t ON g.queue IS NULL AND t.name = g.name
        WHERE t.applied_at IS NULL AND t.xmin::text = g.version FOR UPDATE OF t SKIP LOCKED)
    RETURNING name
), opened AS (
    DELETE FROM pgsched.pauses WHERE what = 'limit' AND name IN (SELECT name FROM q)
)
SELECT (SELECT count(*) FROM q) + (SELECT count(*) FROM l) AS applied
