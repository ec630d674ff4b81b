-- On whose behalf something is done. Where sql/roles.sql is in force some functions run with the rights of the tables'
-- owner, and have to ask whose wish it is; elsewhere the grants of the tables decide, and these answers change nothing.

-- The role that a statement acts for: current_user, but inside a function that runs as the tables' owner the role that
-- the session has set, or its user. (`role` cannot be forged: SET ROLE asks for membership.)
CREATE FUNCTION pgsched.caller() RETURNS name
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN current_user <> (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'pgsched.jobs'::regclass)
            THEN current_user
        WHEN current_setting('role') = 'none' THEN session_user
        ELSE current_setting('role')::name END
$$;

-- The roles whose rows current_user may read and change: its own, and those it is a member of.
CREATE FUNCTION pgsched.my_roles() RETURNS name[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(rolname) FROM pg_roles WHERE pg_has_role(oid, 'MEMBER')
$$;

-- May the caller change what belongs to this role? Where a function runs with the caller's own rights: yes, the grants
-- of the tables decide.
CREATE FUNCTION pgsched.may_change(owner name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(c.name, current_user, 'MEMBER')
        OR EXISTS (SELECT FROM pg_roles r WHERE pg_has_role(c.name, r.oid, 'MEMBER')
                   AND r.rolname IN (owner, 'pgsched_operator', 'pgsched_leader'))
    FROM pgsched.caller() AS c(name)
$$;

CREATE FUNCTION pgsched.refuse_others(what text, owner name) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pgsched.may_change(owner) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE =
            format('permission denied: %s does not belong to role "%s"', what, pgsched.caller());
    END IF;
END $$;

-- An SQL job runs with its owner's rights: nobody makes one that runs with somebody else's.
CREATE OR REPLACE FUNCTION pgsched.bad_owner(owner name) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN owner IS NULL THEN 'owner: must not be null'
        WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = owner) THEN format('owner: there is no role "%s"', owner)
        WHEN NOT pg_has_role(pgsched.caller(), owner, 'MEMBER') THEN
            format('owner: role "%s" may not act for role "%s"', pgsched.caller(), owner)
    END
$$;

-- The edit as it may be written; what is wrong with it is raised.
CREATE OR REPLACE FUNCTION pgsched.edit_allowed(was pgsched.jobs, j pgsched.jobs) RETURNS pgsched.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text;
BEGIN
    IF j.schedule IS NOT NULL AND was.schedule IS NULL AND j.run_at IS NOT DISTINCT FROM was.run_at THEN
        j.run_at := NULL;  -- a job that was to run once gets a schedule; the insert may have filled run_at in
    END IF;
    problem := pgsched.job_error(j);
    IF j.owner IS DISTINCT FROM was.owner THEN
        problem := coalesce(problem, pgsched.bad_owner(j.owner));
    ELSIF (j.kind, j.task, j.args) IS DISTINCT FROM (was.kind, was.task, was.args)
          AND pgsched.bad_owner(was.owner) IS NOT NULL THEN
        j.owner := pgsched.caller();  -- who says what runs, and may not act for the owner, becomes it
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN j;
END $$;
