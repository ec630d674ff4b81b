-- dependencies_gone: edges to runs that somebody has deleted fail (run_anyway: are met), for they will never end.
-- params: after bigint (of the runs that wait, those with a greater id), n int (look at so many of them)
-- returns: (last bigint: the greatest id that was looked at, null: none; ids bigint[]: the runs that have such an edge)
-- locks: row locks on those runs, skipping locked ones
WITH held AS MATERIALIZED (
    SELECT id FROM pgsched.runs WHERE phase = 0 AND ready_at IS NULL AND available_at = '9000-01-01 00:00Z' AND id > %(after)s
    ORDER BY available_at, id LIMIT %(n)s FOR NO KEY UPDATE SKIP LOCKED
), gone AS MATERIALIZED (
    SELECT d.run_id, d.parent_id FROM held CROSS JOIN LATERAL (
        SELECT e.run_id, e.parent_id FROM pgsched.dependencies e WHERE e.run_id = held.id AND e.state = 'open' OFFSET 0) d
    WHERE (SELECT true FROM pgsched.runs p WHERE p.id = d.parent_id) IS NULL
), decided AS (
    UPDATE pgsched.dependencies d SET state = CASE d.on_failure WHEN 'run_anyway' THEN 'met' ELSE 'failed' END
    FROM gone WHERE d.run_id = gone.run_id AND d.parent_id = gone.parent_id
)
SELECT (SELECT max(id) FROM held), ARRAY(SELECT DISTINCT run_id FROM gone)
