-- Every circle of runs that wait for each other has an edge to a later run. Who makes an edge that closes one with the
-- edges that he sees is refused; nobody waits for edges that others make. What he does not see (it is being made, or is newer
-- than his snapshot), or what would take long to find, the leader finds (pgsched/leader/circles.py).
DROP TABLE pgsched.backward_edges;
DROP FUNCTION pgsched.refuse_dependency_cycle(bigint[], boolean);
DROP FUNCTION pgsched.dependency_cycle(bigint[]);

-- A run that waits for this one, and for which this one waits, itself or by way of others; null if none is found among the
-- first so many. Only runs from the id `lowest` on are looked at.
CREATE FUNCTION pgsched.dependency_circle(child bigint, lowest bigint, most integer) RETURNS bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
    WITH RECURSIVE above AS (
        SELECT d.parent_id AS id FROM pgsched.dependencies d
        WHERE d.run_id = child AND d.state = 'open' AND d.parent_id >= lowest
        UNION
        SELECT d.parent_id FROM above JOIN pgsched.dependencies d ON d.run_id = above.id
        WHERE d.state = 'open' AND d.parent_id >= lowest
    )
    SELECT seen.id FROM (SELECT above.id FROM above LIMIT most) seen
    WHERE (SELECT true FROM pgsched.dependencies d
           WHERE d.run_id = seen.id AND d.parent_id = child AND d.state = 'open') LIMIT 1
$$;

-- New edges hold their runs back, whatever made them. With its owner's rights: who may insert a run and an edge need not
-- be able to update runs. No sequential scans and hash joins: the plan for the first of many inserts is kept.
CREATE OR REPLACE FUNCTION pgsched.dependencies_after_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    -- what is read to find a circle, of all edges of the statement together: the leader makes edges as well, between ticks
    most constant integer := 10000;
    children bigint[];
    suspects bigint[];
    wrong bigint;
    ends_at timestamptz;
BEGIN
    SELECT array_agg(DISTINCT a.run_id) INTO children FROM added a;
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
    IF EXISTS (SELECT FROM pgsched.dependencies d WHERE d.parent_id > d.run_id AND d.state = 'open') THEN
        -- a circle that is new has a new edge to a later run, or an older edge leads to a run that has a new one
        suspects := ARRAY(
            SELECT a.run_id FROM added a WHERE a.parent_id > a.run_id
            UNION
            SELECT older.parent_id FROM (
                SELECT d.run_id, d.parent_id FROM (
                    SELECT d.run_id, d.parent_id FROM unnest(children) c(id) CROSS JOIN LATERAL (
                        SELECT e.run_id, e.parent_id FROM pgsched.dependencies e
                        WHERE e.parent_id = c.id AND e.state = 'open' LIMIT 1000) d
                    LIMIT most) d
                EXCEPT
                SELECT a.run_id, a.parent_id FROM added a) older);
        ends_at := clock_timestamp() + interval '0.02 s';
        FOREACH wrong IN ARRAY suspects LOOP
            IF pgsched.dependency_circle(wrong, 0, greatest(most / cardinality(suspects), 100)) IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'check_violation', TABLE = 'dependencies', MESSAGE =
                    format('parent_id: run %s would wait for itself, by way of the runs that it waits for', wrong);
            END IF;
            EXIT WHEN clock_timestamp() > ends_at;
        END LOOP;
    END IF;
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
-- Two edits at once may close a circle together, for nobody waits for another's edit: the leader skips the slots of such jobs.
CREATE OR REPLACE FUNCTION pgsched.jobs_after_jobs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
    wrong bigint;
BEGIN
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
