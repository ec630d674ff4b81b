-- Two transactions that each add an edge must not close a cycle together. Every cycle has an edge to a later run, so that
-- edges to earlier runs are made side by side; one to a later run waits for all others, and they for it (the lock of the
-- table pgsched.backward_edges, which nobody else may take). Each then has to see what the others have committed
-- meanwhile, which under REPEATABLE READ it would not: who makes an edge to a later run also writes the row of
-- pgsched.backward_edges, and PostgreSQL refuses to lock a row that was written after the snapshot.
CREATE OR REPLACE FUNCTION pgsched.refuse_dependency_cycle(children bigint[], backward boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    isolated boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    child bigint;
BEGIN
    IF NOT backward THEN
        LOCK TABLE pgsched.backward_edges IN ROW SHARE MODE;
    END IF;
    IF isolated THEN
        BEGIN
            PERFORM FROM pgsched.backward_edges FOR SHARE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'dependencies: the row of pgsched.backward_edges is missing: run pgsched migrate';
            END IF;
        EXCEPTION WHEN serialization_failure THEN
            RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE =
                'dependencies: an edge that this transaction does not see was made meanwhile; repeat the transaction';
        END;
    END IF;
    IF NOT backward AND NOT EXISTS (SELECT FROM pgsched.dependencies d
                                    WHERE d.parent_id > d.run_id AND d.state = 'open') THEN
        RETURN;
    END IF;
    IF isolated THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE =
            'dependencies: while a run waits for one made after it, edges can only be made under READ COMMITTED';
    END IF;
    LOCK TABLE pgsched.backward_edges IN EXCLUSIVE MODE;
    INSERT INTO pgsched.backward_edges AS e DEFAULT VALUES ON CONFLICT (name) DO UPDATE SET made = e.made + 1;
    child := pgsched.dependency_cycle(children);
    IF child IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'dependencies', MESSAGE =
            format('parent_id: run %s would wait for itself, by way of the runs that it waits for', child);
    END IF;
END $$;

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
        AND (r.phase >= 3 /* ended */ OR current_setting('transaction_isolation') IN ('repeatable read', 'serializable'))
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
    PERFORM pgsched.tell_leader();
    RETURN NULL;
END $$;

-- A run that loses an edge is looked at again: it may wait for nothing now.
CREATE OR REPLACE FUNCTION pgsched.dependencies_after_delete() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    UPDATE pgsched.runs r SET available_at = '8999-01-01 00:00Z' FROM removed d
    WHERE r.id = d.run_id AND r.phase = 0 /* waiting */ AND r.available_at = '9000-01-01 00:00Z' AND d.state <> 'met';
    IF FOUND THEN
        PERFORM pgsched.tell_leader();
    END IF;
    RETURN NULL;
END $$;

-- What is wrong is said when the column is written, and not at any other edit: a job that is waited for may be deleted.
-- Two edits at once must not close a circle together.
CREATE OR REPLACE FUNCTION pgsched.jobs_after_jobs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
    wrong bigint;
BEGIN
    PERFORM pgsched.take_turn('after_jobs');
    SELECT a.id INTO wrong FROM unnest(NEW.after_jobs) a(id)
    WHERE NOT EXISTS (SELECT FROM pgsched.jobs j WHERE j.id = a.id AND pgsched.may_change(j.owner))
      AND a.id IS DISTINCT FROM NEW.id LIMIT 1;
    problem := CASE
        WHEN array_ndims(NEW.after_jobs) > 1 THEN 'after_jobs: must be a plain list of the ids of jobs'
        WHEN array_position(NEW.after_jobs, NULL) IS NOT NULL THEN 'after_jobs: must not hold null'
        WHEN cardinality(NEW.after_jobs) > 100 THEN
            format('after_jobs: %s jobs, at most 100 are allowed', cardinality(NEW.after_jobs))
        WHEN NEW.id = ANY (NEW.after_jobs) THEN 'after_jobs: a job cannot wait for itself'
        WHEN wrong IS NOT NULL THEN format('after_jobs: there is no job %s', wrong) END;
    IF problem IS NULL THEN
        WITH RECURSIVE before AS (
            SELECT unnest(NEW.after_jobs) AS id
            UNION
            SELECT unnest(j.after_jobs) FROM before JOIN pgsched.jobs j ON j.id = before.id
        )
        SELECT format('after_jobs: job "%s" waits for this one already, itself or by way of others', j.name) INTO problem
        FROM before CROSS JOIN pgsched.jobs j
        WHERE before.id = NEW.id AND j.id = ANY (NEW.after_jobs) LIMIT 1;
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN NEW;
END $$;
