-- dependencies_release: what runs that have ended mean for those that wait for them. An edge is met by a success, or by
-- any end where on_failure says run_anyway; it fails where on_failure says cancel; under `wait` it stays open.
-- params: after bigint (of the parents, those with a greater id), n int (so many of them, and twice as many edges, at most)
-- returns: (more boolean: something was decided, and not all may have been; ids bigint[]: the runs of which some were;
--          last bigint: the greatest id that was looked at, null: there are none behind it)
-- locks: row locks on those parents and children, skipping locked ones. A parent is looked at again until all its edges
--        are decided.
WITH ended AS MATERIALIZED (
    SELECT id, state FROM pgsched.runs WHERE phase >= 3 AND has_children AND id > %(after)s
    ORDER BY id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED
), edges AS MATERIALIZED (
    -- locked before they are counted: a child that somebody has locked takes the place of none behind it
    SELECT d.run_id, d.parent_id, d.state
    FROM ended CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id,
            CASE WHEN ended.state = 'succeeded' OR e.on_failure = 'run_anyway' THEN 'met' ELSE 'failed' END AS state
        FROM pgsched.dependencies e
        WHERE e.parent_id = ended.id AND e.state = 'open' AND (ended.state = 'succeeded' OR e.on_failure <> 'wait')
        OFFSET 0) d
    CROSS JOIN LATERAL (
        SELECT c.id FROM pgsched.runs c WHERE c.id = d.run_id FOR NO KEY UPDATE SKIP LOCKED) free
    LIMIT 2 * %(n)s
), decided AS (
    UPDATE pgsched.dependencies d SET state = edges.state FROM edges
    WHERE d.run_id = edges.run_id AND d.parent_id = edges.parent_id
    RETURNING d.run_id
), whole AS MATERIALIZED (
    -- the others have a child that somebody has locked; one that was deleted by hand is waited for by nobody
    SELECT ended.id FROM ended WHERE (SELECT count(*) FROM edges) < 2 * %(n)s AND (
        SELECT true FROM pgsched.dependencies e
        WHERE e.parent_id = ended.id AND e.state = 'open' AND (ended.state = 'succeeded' OR e.on_failure <> 'wait')
          AND ((e.run_id, e.parent_id) IN (SELECT f.run_id, f.parent_id FROM edges f)) IS NOT TRUE
          AND (SELECT true FROM pgsched.runs c WHERE c.id = e.run_id) LIMIT 1) IS NULL
), done AS (
    UPDATE pgsched.runs r SET has_children = NULL WHERE r.id = ANY (ARRAY(SELECT id FROM whole))
    RETURNING r.id
)
SELECT ((SELECT count(*) FROM ended) = %(n)s OR (SELECT count(*) FROM edges) = 2 * %(n)s)
        AND (EXISTS (SELECT FROM decided) OR EXISTS (SELECT FROM done)), ARRAY(SELECT DISTINCT run_id FROM decided),
    (SELECT max(id) FROM ended HAVING count(*) = %(n)s)
