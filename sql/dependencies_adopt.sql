-- dependencies_adopt: runs whose edges are new are watched from now on: the parents that they wait for are marked, so that
-- whoever ends one wakes the leader. A run stays new as long as somebody has locked one of its parents.
-- params: after bigint (of the new ones, those with a greater id), n int (look at so many of them)
-- returns: (watched bigint: how many; loose bigint[]: those that wait for nothing that is open; last bigint: the greatest
--          id that was looked at, null: there are none behind it)
-- locks: row locks on those runs and on parents that are not marked yet, skipping locked ones. One update for both: a run
--        may be a child and a parent.
WITH fresh AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE phase = 0 AND ready_at IS NULL AND available_at = '8999-01-01 00:00Z' AND id > %(after)s
    ORDER BY available_at, id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED
), edges AS MATERIALIZED (
    SELECT d.run_id, d.parent_id,
        (SELECT p.has_children IS NOT TRUE FROM pgsched.runs p WHERE p.id = d.parent_id) AS unmarked
    FROM fresh CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id FROM pgsched.dependencies e WHERE e.run_id = fresh.id AND e.state = 'open' OFFSET 0) d
), marked AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE id = ANY (ARRAY(SELECT DISTINCT parent_id FROM edges WHERE unmarked))
    FOR NO KEY UPDATE SKIP LOCKED
), watched AS (
    SELECT id FROM fresh
    EXCEPT SELECT run_id FROM edges WHERE unmarked AND parent_id NOT IN (SELECT id FROM marked)
), changed AS (
    SELECT id, bool_or(mark) AS mark, bool_or(watch) AS watch FROM (
        SELECT id, true AS mark, false AS watch FROM marked UNION ALL SELECT id, false, true FROM watched) both_ways
    GROUP BY id
), done AS (
    UPDATE pgsched.runs r SET has_children = CASE WHEN changed.mark THEN true ELSE r.has_children END,
        available_at = CASE WHEN changed.watch THEN '9000-01-01 00:00Z' ELSE r.available_at END
    FROM changed WHERE r.id = changed.id
)
SELECT (SELECT count(*) FROM watched), ARRAY(SELECT id FROM watched EXCEPT SELECT run_id FROM edges),
    (SELECT max(id) FROM fresh HAVING count(*) = %(n)s)
