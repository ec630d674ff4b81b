-- limit_applied: nothing is admitted beyond these limits any more. They count as applied once nothing can be: when every
-- transaction that could have begun before somebody changed them has ended, or changed nothing.
-- params: queues text[], limits boolean (all limits that are yet to be applied)
-- returns: applied bigint; and what was held back because it got its first limit is claimed again
-- locks: those rows, skipping locked ones
WITH old AS MATERIALIZED (
    SELECT age(pg_snapshot_xmin(pg_current_snapshot())::xid) AS oldest
), q AS (
    UPDATE pgsched.queues SET applied_at = clock_timestamp() WHERE name IN (
        SELECT name FROM pgsched.queues WHERE applied_at IS NULL AND name = ANY (%(queues)s::text[])
          AND age(xmin) > (SELECT oldest FROM old) FOR UPDATE SKIP LOCKED)
    RETURNING name
), l AS (
    UPDATE pgsched.limits SET applied_at = clock_timestamp() WHERE name IN (
        SELECT name FROM pgsched.limits WHERE applied_at IS NULL AND %(limits)s
          AND age(xmin) > (SELECT oldest FROM old) FOR UPDATE SKIP LOCKED)
    RETURNING name
)
, opened AS (
    DELETE FROM pgsched.pauses WHERE what = 'limit' AND name = ANY (%(queues)s::text[])
)
SELECT (SELECT count(*) FROM q) + (SELECT count(*) FROM l) AS applied
