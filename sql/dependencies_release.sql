-- dependencies_release: what runs that have ended mean for those that wait for them. An edge is met by a success, or by
-- any end where on_failure says run_anyway; it fails where on_failure says cancel; under `wait` it stays open.
-- params: n int (so many parents, and twice as many edges, at most)
-- returns: (more boolean: something was decided, and not all may have been; ids bigint[]: the runs of which some were)
-- locks: row locks on those parents and children, skipping locked ones. A parent is looked at again until all its edges
--        are decided.
WITH ended AS MATERIALIZED (
    SELECT id, state FROM pgsched.runs WHERE phase >= 3 AND has_children
    ORDER BY id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED
), edges AS MATERIALIZED (
    SELECT d.run_id, d.parent_id,
        CASE WHEN ended.state = 'succeeded' OR d.on_failure = 'run_anyway' THEN 'met' ELSE 'failed' END AS state
    FROM ended CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id, e.on_failure FROM pgsched.dependencies e
        WHERE e.parent_id = ended.id AND e.state = 'open' AND (ended.state = 'succeeded' OR e.on_failure <> 'wait')
        LIMIT 2 * %(n)s) d
    LIMIT 2 * %(n)s
), free AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE id = ANY (ARRAY(SELECT DISTINCT run_id FROM edges))
    FOR NO KEY UPDATE SKIP LOCKED
), decided AS (
    UPDATE pgsched.dependencies d SET state = edges.state FROM edges
    WHERE (edges.run_id IN (SELECT id FROM free)) IS TRUE  -- a hash, and no join of both
      AND d.run_id = edges.run_id AND d.parent_id = edges.parent_id
    RETURNING d.run_id
), whole AS MATERIALIZED (
    SELECT id FROM ended WHERE (SELECT count(*) FROM edges) < 2 * %(n)s
    -- `free` lacks those that somebody has locked, and those that were deleted by hand
    EXCEPT SELECT parent_id FROM edges WHERE run_id NOT IN (SELECT id FROM free)
        AND (SELECT true FROM pgsched.runs c WHERE c.id = edges.run_id)
), done AS (
    UPDATE pgsched.runs r SET has_children = NULL WHERE r.id = ANY (ARRAY(SELECT id FROM whole))
    RETURNING r.id
)
SELECT ((SELECT count(*) FROM ended) = %(n)s OR (SELECT count(*) FROM edges) = 2 * %(n)s)
        AND (EXISTS (SELECT FROM decided) OR EXISTS (SELECT FROM done)), ARRAY(SELECT DISTINCT run_id FROM decided)
