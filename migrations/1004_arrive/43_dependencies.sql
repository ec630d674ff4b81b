-- The options of a slot that waits for slots of other jobs: which jobs, and which of their slots (jobs.after_match).
CREATE OR REPLACE FUNCTION pgsched.held_options(j pgsched.jobs, starts_at timestamptz, overlap boolean) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(pgsched.job_options(j), '{}') || jsonb_build_object('after_jobs', j.after_jobs)
        || CASE WHEN j.after_match <> 'same' THEN jsonb_build_object('after_match', j.after_match) ELSE '{}' END
        || CASE WHEN starts_at > clock_timestamp() THEN jsonb_build_object('not_before', starts_at) ELSE '{}' END
        || CASE WHEN overlap THEN '{"overlap": true}'::jsonb ELSE '{}' END
$$;
