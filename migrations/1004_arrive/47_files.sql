-- Files of jobs (pgsched apply): who may use the name of an owner, and what becomes of entries whose object goes.

-- Check whether the caller may use a name of an owner that this role used first.
CREATE FUNCTION pgsched.may_use_file(role name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = $1 AND pg_has_role(current_user, r.oid, 'MEMBER'))
        OR EXISTS (SELECT FROM pg_roles o JOIN pg_roles r ON r.rolname = $1
                   WHERE o.rolname = 'pgsched_operator' AND pg_has_role(current_user, o.oid, 'MEMBER')
                     AND pg_has_role(r.oid, o.oid, 'MEMBER'))
$$;

-- Check whether the caller may declare an object with a file: jobs and calendars of its own. Operators need not ask.
CREATE FUNCTION pgsched.may_declare(what text, name text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF what = 'job' THEN
        RETURN EXISTS (SELECT FROM pgsched.jobs j WHERE j.name = may_declare.name AND j.owner = ANY (pgsched.my_roles()));
    ELSIF what = 'calendar' THEN  -- a query of its own: not every role may read calendars
        RETURN EXISTS (SELECT FROM pgsched.calendars c WHERE c.name = may_declare.name AND c.owner = ANY (pgsched.my_roles()));
    END IF;
    RETURN false;
END $$;

-- The entry of an object goes with it: else the next owner of the name would find it declared by another one's file. The
-- entry of a job that has deleted itself stays, so that an apply does not make it again.
CREATE FUNCTION pgsched.file_entries_of_jobs() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgsched.file_entries e USING gone g
    WHERE e.what = 'job' AND e.name = g.name AND NOT (g.delete_after_run AND g.schedule IS NULL AND g.next_run_at IS NULL);
    RETURN NULL;
END $$;
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.jobs REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_jobs();

CREATE FUNCTION pgsched.file_entries_of_calendars() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgsched.file_entries e USING gone g WHERE e.what = 'calendar' AND e.name = g.name;
    RETURN NULL;
END $$;
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.calendars REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_calendars();

-- A job or calendar that a person renames stays declared, under its new name.
CREATE FUNCTION pgsched.file_entries_renamed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgsched.file_entries WHERE what = TG_ARGV[0] AND name = NEW.name;
    UPDATE pgsched.file_entries SET name = NEW.name WHERE what = TG_ARGV[0] AND name = OLD.name;
    RETURN NULL;
END $$;
CREATE TRIGGER g_file_entries_renamed AFTER UPDATE OF name ON pgsched.jobs FOR EACH ROW WHEN (OLD.name <> NEW.name)
    EXECUTE FUNCTION pgsched.file_entries_renamed('job');
CREATE TRIGGER g_file_entries_renamed AFTER UPDATE OF name ON pgsched.calendars FOR EACH ROW WHEN (OLD.name <> NEW.name)
    EXECUTE FUNCTION pgsched.file_entries_renamed('calendar');

-- One note for each statement and owner: an apply may declare thousands of objects.
CREATE FUNCTION pgsched.audit_file_entries() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note(TG_ARGV[0], 'file', c.owner, jsonb_build_object('objects', c.objects, 'some', to_jsonb(c.some)))
    FROM (SELECT e.owner, count(*) AS objects, (array_agg(e.what || ' ' || e.name ORDER BY e.what, e.name))[:20] AS some
          FROM changed e GROUP BY e.owner) c;
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.file_entries REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_file_entries('created');
CREATE TRIGGER f_audit_update AFTER UPDATE ON pgsched.file_entries REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_file_entries('changed');
CREATE TRIGGER f_audit_delete AFTER DELETE ON pgsched.file_entries REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_file_entries('deleted');
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, role ON pgsched.file_owners
    FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('file');
