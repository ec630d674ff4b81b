-- A graph as a whole: the runs that are bound to one by edges, in either direction, however far away.

CREATE FUNCTION pgsched.run_graph(run_id bigint) RETURNS SETOF bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
    WITH RECURSIVE graph AS (
        SELECT $1 AS id
        UNION
        SELECT next.id FROM graph CROSS JOIN LATERAL (
            SELECT d.parent_id AS id FROM pgsched.dependencies d WHERE d.run_id = graph.id
            UNION ALL
            SELECT d.run_id FROM pgsched.dependencies d WHERE d.parent_id = graph.id
            OFFSET 0) next
    )
    SELECT id FROM graph
$$;

-- Revives every run of the graph that ended and did not succeed: those that wait for none of these start now, the others
-- wait again. What has succeeded is not repeated. Returns the ids and the new states.
CREATE FUNCTION pgsched.retry_tree(run_id bigint) RETURNS TABLE (id bigint, state text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    revived bigint[];
    one bigint;
BEGIN
    -- locked before any is changed, and in the order in which the leader locks them
    revived := ARRAY(SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT pgsched.run_graph(retry_tree.run_id)))
                     AND r.state IN ('dead', 'cancelled', 'missed', 'skipped') ORDER BY r.id FOR UPDATE);
    FOREACH one IN ARRAY revived LOOP
        PERFORM pgsched.retry(one);
    END LOOP;
    UPDATE pgsched.dependencies d SET state = CASE p.state WHEN 'succeeded' THEN 'met' ELSE 'open' END
    FROM pgsched.runs p WHERE d.run_id = ANY (revived) AND p.id = d.parent_id;
    UPDATE pgsched.runs r SET state = 'waiting', ready_at = NULL, available_at = '8999-01-01 00:00Z'
    WHERE r.id = ANY (revived)
      AND EXISTS (SELECT FROM pgsched.dependencies d WHERE d.run_id = r.id AND d.state = 'open');
    PERFORM pg_notify('pgsched_leader', 'runs');
    RETURN QUERY SELECT r.id, r.state FROM pgsched.runs r WHERE r.id = ANY (revived) ORDER BY r.id;
END $$;
