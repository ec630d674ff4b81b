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
CREATE FUNCTION pgsched.bad_owner(owner name) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN owner IS NULL THEN 'owner: must not be null'
        WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = owner) THEN format('owner: there is no role "%s"', owner)
        WHEN NOT pg_has_role(pgsched.caller(), owner, 'MEMBER') THEN
            format('owner: role "%s" may not act for role "%s"', pgsched.caller(), owner)
    END
$$;

-- Who changed what, and when: one row of pgsched.audit for each change that a person made to a job, a queue, a limit, a
-- pause or a run. What the leader and the workers write fires none of the triggers below, and a job that goes by itself
-- (delete_after_run) is not a person's change either.

-- With its owner's rights: nobody else needs any on the table, and nobody can write in another's name.
CREATE FUNCTION pgsched.note(action text, what text, name text, change jsonb DEFAULT NULL) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pgsched.audit (action, what, name, change, acting_as)
    VALUES ($1, $2, $3, $4, nullif(current_setting('role'), 'none'))
$$;

-- A row as it is kept: without nulls and what the database keeps itself; of a long value its beginning and its size.
CREATE FUNCTION pgsched.audited(r jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(e.key, CASE WHEN octet_length(e.value::text) <= 2000 THEN e.value
        ELSE to_jsonb(format('%s... (%s bytes, md5 %s)', left(e.value::text, 500), octet_length(e.value::text),
                             md5(e.value::text))) END), '{}')
    FROM jsonb_each(r - '{id,created_at,updated_at,anchor_at,decided_until,next_run_at,run_count,error,error_at,paused_at,applied_at,limited}'::text[]) e
    WHERE e.value <> 'null'
$$;

-- What an edit changed, as {column: [before, after]}; null if nothing.
CREATE FUNCTION pgsched.audited_change(was jsonb, is_now jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT jsonb_object_agg(key, jsonb_build_array(w.value, n.value))
    FROM jsonb_each(pgsched.audited(was)) w FULL JOIN jsonb_each(pgsched.audited(is_now)) n USING (key)
    WHERE w.value IS DISTINCT FROM n.value
$$;

CREATE FUNCTION pgsched.audit_jobs_added() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note('created', 'job', a.name, pgsched.audited(to_jsonb(a))) FROM added a;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.audit_jobs_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    change jsonb := pgsched.audited_change(to_jsonb(OLD), to_jsonb(NEW));
BEGIN
    IF change IS NOT NULL THEN
        PERFORM pgsched.note(CASE WHEN NEW.paused AND NOT OLD.paused THEN 'paused'
                                  WHEN OLD.paused AND NOT NEW.paused THEN 'resumed' ELSE 'changed' END,
                             'job', NEW.name, change);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.audit_jobs_gone() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note('deleted', 'job', g.name, pgsched.audited(to_jsonb(g))) FROM gone g
    WHERE NOT (g.delete_after_run AND g.next_run_at IS NULL);
    RETURN NULL;
END $$;

-- Queues, limits and pauses; TG_ARGV[0] says which. A pause that ended by itself was nobody's doing.
CREATE FUNCTION pgsched.audit_setting() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END;
    is_now jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END;
    r jsonb := coalesce(is_now, was);
    change jsonb := CASE TG_OP WHEN 'UPDATE' THEN pgsched.audited_change(was, is_now) ELSE pgsched.audited(r) END;
    pause boolean := TG_ARGV[0] = 'pause';
BEGIN
    -- what limit: the database's own, while a queue's first limit is applied
    IF change IS NOT NULL AND r ->> 'what' IS DISTINCT FROM 'limit'
        AND NOT (pause AND TG_OP = 'DELETE' AND coalesce((r ->> 'resume_at')::timestamptz <= clock_timestamp(), false))
    THEN
        PERFORM pgsched.note(CASE TG_OP WHEN 'INSERT' THEN CASE WHEN pause THEN 'paused' ELSE 'created' END
                                        WHEN 'DELETE' THEN CASE WHEN pause THEN 'resumed' ELSE 'deleted' END
                                        ELSE 'changed' END, TG_ARGV[0],
            CASE WHEN pause THEN btrim(format('%s %s', r ->> 'what', r ->> 'name')) ELSE r ->> 'name' END, change);
    END IF;
    RETURN NULL;
END $$;

-- Backfills are made by pgsched.backfill and by plain INSERT.
CREATE FUNCTION pgsched.audit_backfills() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note('created', 'backfill', NEW.id::text, jsonb_build_object('job', NEW.job, 'from', NEW.from_at,
        'to', NEW.to_at, 'mode', NEW.mode, 'max_active', NEW.max_active));
    RETURN NULL;
END $$;
