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
        PERFORM pgsched.retry_now(one);
    END LOOP;
    PERFORM pgsched.wait_again(revived);
    RETURN QUERY SELECT r.id, r.state FROM pgsched.runs r WHERE r.id = ANY (revived) ORDER BY r.id;
END $$;
