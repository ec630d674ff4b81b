-- Dependencies: a run that waits for others is `waiting`, and only the leader lets it go (admit_dependents in sql/dependencies.sql).
--
-- The marker, for everything else that admits runs: a waiting run with dependencies that are not resolved has
-- available_at >= '8998-01-01 00:00Z', which no query for what is due ever reaches in the index. So:
--   * whoever admits waiting runs takes those with available_at <= clock_timestamp() and need know nothing of this;
--   * when its dependencies are resolved the leader lets it go: `scheduled` if a later time was asked for, else as every
--     run that becomes claimable, into `queued` or, if it is limited, `waiting` with ready_at. One that an overlap policy
--     held as well (options.overlap) stays `waiting` until that lets it go;
--   * 9000-01-01 says that the leader watches all parents, 8999-01-01 that it has to look at the run's edges first,
--     8998-01-01 that a slot waits for slots of other jobs whose runs are yet to be found (options.after_jobs).
-- A run that others wait for has has_children: who ends it wakes the leader, which finds it by runs_ended_parents.
-- A run that has and is none of these pays for nothing.
--
-- INSERT INTO pgsched.dependencies is all that a client in any language needs; the triggers below do the rest.

-- any_of: of all edges of a run that say so, one has to be met; every other edge has to be.
-- state: met, failed (the run will be cancelled), or open: its parent has not ended, or went wrong and is waited for.
ALTER TABLE pgsched.dependencies
    ADD COLUMN any_of boolean NOT NULL DEFAULT false,
    ADD COLUMN state text NOT NULL DEFAULT 'open',
    ADD CONSTRAINT dependencies_state_check CHECK (state IN ('open', 'met', 'failed')) NOT VALID;

-- Edges to a run that was made later: only these can close a cycle, and there is hardly ever one.
CREATE INDEX dependencies_backward ON pgsched.dependencies (run_id) WHERE parent_id > run_id AND state = 'open';
-- The transaction that last made such an edge. A sequence, because it is seen at once by transactions of any age.
CREATE SEQUENCE pgsched.backward_edge MINVALUE 0 START 0;

-- The runs that wait for themselves, by way of others; null if there are none. Every cycle has an edge to a later run.
CREATE FUNCTION pgsched.dependency_cycle(children bigint[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    child bigint;
BEGIN
    IF cardinality(children) > 1 THEN  -- fewer to ask than all of them
        children := ARRAY(SELECT DISTINCT d.run_id FROM pgsched.dependencies d
                          WHERE d.parent_id > d.run_id AND d.state = 'open');
    END IF;
    FOREACH child IN ARRAY children LOOP
        PERFORM FROM (
            WITH RECURSIVE above AS (
                SELECT d.parent_id AS id FROM pgsched.dependencies d WHERE d.run_id = child
                UNION
                SELECT d.parent_id FROM above JOIN pgsched.dependencies d ON d.run_id = above.id
            )
            SELECT FROM above WHERE above.id = child LIMIT 1
        ) found;
        IF FOUND THEN
            RETURN child;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Two transactions that each add an edge must not close a cycle together. Edges to earlier runs cannot, and are made side
-- by side; one to a later run waits for all others, and they for it. It has to see what they have committed meanwhile,
-- which under REPEATABLE READ it would not.
CREATE FUNCTION pgsched.refuse_dependency_cycle(children bigint[], backward boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    edges_lock CONSTANT bigint := hashtextextended('pgsched.dependencies', 0);
    isolated boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    last_backward bigint;
    child bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(edges_lock) WHERE NOT backward;
    last_backward := pg_sequence_last_value('pgsched.backward_edge');
    IF isolated AND NOT coalesce(pg_visible_in_snapshot(last_backward::text::xid8, pg_current_snapshot()), true)
        AND last_backward IS DISTINCT FROM pg_current_xact_id()::text::bigint THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE =
            'dependencies: an edge that this transaction does not see was made meanwhile; repeat the transaction';
    END IF;
    IF NOT backward AND NOT EXISTS (SELECT FROM pgsched.dependencies d
                                    WHERE d.parent_id > d.run_id AND d.state = 'open') THEN
        RETURN;
    END IF;
    IF isolated THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE =
            'dependencies: while a run waits for one made after it, edges can only be made under READ COMMITTED';
    END IF;
    PERFORM pg_advisory_xact_lock(edges_lock);
    PERFORM setval('pgsched.backward_edge', pg_current_xact_id()::text::bigint);
    child := pgsched.dependency_cycle(children);
    IF child IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'dependencies', MESSAGE =
            format('parent_id: run %s would wait for itself, by way of the runs that it waits for', child);
    END IF;
END $$;

-- New edges hold their runs back, whatever made them. With its owner's rights: who may insert a run and an edge need not
-- be able to update runs. No sequential scans and hash joins: the plan for the first of many inserts is kept.
CREATE FUNCTION pgsched.dependencies_after_insert() RETURNS trigger
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
    -- the lock keeps the pruner from one that has ended
    PERFORM FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT DISTINCT a.parent_id FROM added a)) AND r.phase >= 3
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
CREATE TRIGGER a_hold_back AFTER INSERT ON pgsched.dependencies REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_after_insert();

-- A run that loses an edge is looked at again: it may wait for nothing now.
CREATE FUNCTION pgsched.dependencies_after_delete() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    UPDATE pgsched.runs r SET available_at = '8999-01-01 00:00Z' FROM removed d
    WHERE r.id = d.run_id AND r.phase = 0 AND r.available_at = '9000-01-01 00:00Z' AND d.state <> 'met';
    IF FOUND THEN
        PERFORM pg_notify('pgsched_leader', 'runs');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER a_look_again AFTER DELETE ON pgsched.dependencies REFERENCING OLD TABLE AS removed
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_after_delete();

-- What an edge binds is judged when it is made.
CREATE FUNCTION pgsched.dependencies_no_update() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', TABLE = 'dependencies', MESSAGE =
        'dependencies: the runs of an edge cannot be changed: delete it, and insert another';
END $$;
CREATE TRIGGER a_no_update BEFORE UPDATE OF run_id, parent_id ON pgsched.dependencies
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.dependencies_no_update();
