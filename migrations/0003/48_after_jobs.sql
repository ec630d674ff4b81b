-- jobs.after_jobs: a slot of the job starts when the runs of those jobs for the same slot have succeeded. The leader finds
-- those runs and makes them the slot's parents (dependencies_slots in sql/dependencies.sql); from then on it waits like any other run.

-- What is wrong is said when the column is written, and not at any other edit: a job that is waited for may be deleted.
-- Two edits at once must not close a circle together.
CREATE FUNCTION pgsched.jobs_after_jobs() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
    wrong bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('pgsched.after_jobs', 0));
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
-- after the triggers that judge the rest of the row
CREATE TRIGGER z_after_jobs_insert BEFORE INSERT ON pgsched.jobs
    FOR EACH ROW WHEN (cardinality(NEW.after_jobs) > 0) EXECUTE FUNCTION pgsched.jobs_after_jobs();
CREATE TRIGGER z_after_jobs_update BEFORE UPDATE OF after_jobs ON pgsched.jobs
    FOR EACH ROW WHEN (cardinality(NEW.after_jobs) > 0) EXECUTE FUNCTION pgsched.jobs_after_jobs();

-- What a slot that waits for other jobs keeps until it is let go: the jobs, when it may start at the earliest, and whether
-- an overlap policy holds it as well.
CREATE FUNCTION pgsched.held_options(j pgsched.jobs, starts_at timestamptz, overlap boolean) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(pgsched.job_options(j), '{}') || jsonb_build_object('after_jobs', j.after_jobs)
        || CASE WHEN starts_at > clock_timestamp() THEN jsonb_build_object('not_before', starts_at) ELSE '{}' END
        || CASE WHEN overlap THEN '{"overlap": true}'::jsonb ELSE '{}' END
$$;
