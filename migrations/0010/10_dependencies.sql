-- New edges hold their runs back, whatever made them. With its owner's rights: who may insert a run and an edge need not
-- be able to update runs. No sequential scans and hash joins: the plan for the first of many inserts is kept.
CREATE OR REPLACE FUNCTION pgsched.dependencies_after_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    children bigint[];
    wrong bigint;
    backward boolean;
BEGIN
    SELECT array_agg(DISTINCT a.run_id), coalesce(bool_or(a.parent_id > a.run_id), false) INTO children, backward
    FROM added a;
    IF children IS NULL THEN
        RETURN NULL;
    END IF;
    -- first the lock: a worker must not claim them between this question and the update
    PERFORM FROM pgsched.runs r WHERE r.id = ANY (children) ORDER BY r.id FOR NO KEY UPDATE;
    -- sub-selects, here and below, and not NOT EXISTS: as joins they would read all runs for each edge
    SELECT c.id INTO wrong FROM unnest(children) c(id) WHERE (
        SELECT true FROM pgsched.runs r WHERE r.id = c.id AND r.state IN ('waiting', 'scheduled', 'queued')
            AND r.started_at IS NULL) IS NULL LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'dependencies', MESSAGE =
            format('run_id: run %s can wait for nothing: it has started, has ended or does not exist', wrong);
    END IF;
    -- The lock keeps the pruner from one that has ended. One that ends from now on is counted, and may go, only when this
    -- transaction has ended (leader/rollups.py). An old snapshot tells neither whether one has ended by now, nor whether
    -- it is there still: there any is locked, and that fails where one has gone.
    PERFORM FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT DISTINCT a.parent_id FROM added a))
        AND (r.phase >= 3 OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable'))
    FOR KEY SHARE;
    SELECT a.parent_id INTO wrong FROM added a
    WHERE (SELECT r.id FROM pgsched.runs r WHERE r.id = a.parent_id) IS NULL LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'foreign_key_violation', TABLE = 'dependencies', MESSAGE =
            format('parent_id: there is no run %s to wait for; it may have been pruned', wrong);
    END IF;
    PERFORM pgsched.refuse_dependency_cycle(children, backward);
    UPDATE pgsched.runs r SET state = 'waiting', ready_at = NULL, available_at = '8999-01-01 00:00Z',
        options = nullif(coalesce(r.options, '{}')
            || CASE WHEN r.available_at > clock_timestamp() AND r.available_at < '8998-01-01 00:00Z'
                    THEN jsonb_build_object('not_before', r.available_at) ELSE '{}' END
            || CASE WHEN r.state = 'waiting' AND r.ready_at IS NULL AND r.job_id IS NOT NULL
                         AND r.available_at < '8998-01-01 00:00Z'
                    THEN '{"overlap": true}'::jsonb ELSE '{}' END, '{}')
    WHERE r.id = ANY (children) AND (r.state <> 'waiting' OR r.available_at <> '8999-01-01 00:00Z');
    PERFORM pg_notify('pgsched_leader', 'runs');
    RETURN NULL;
END $$;
