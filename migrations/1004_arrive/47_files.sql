-- Files of jobs (pgsched apply): who may use the name of an owner, and what becomes of entries whose object goes.

-- Check whether the caller may use a name of an owner that this role used first. A role that is gone keeps nobody from it.
CREATE FUNCTION pgsched.may_use_file(role name) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = $1)
        OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = $1 AND pg_has_role(current_user, r.oid, 'MEMBER'))
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

-- An entry is about the row that has the name when it is declared.
CREATE FUNCTION pgsched.file_entries_object() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NEW.what = 'job' THEN
        NEW.object_id := (SELECT j.id FROM pgsched.jobs j WHERE j.name = NEW.name);
    ELSIF NEW.what = 'calendar' THEN
        NEW.object_id := (SELECT c.id FROM pgsched.calendars c WHERE c.name = NEW.name);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_object BEFORE INSERT OR UPDATE OF owner ON pgsched.file_entries
    FOR EACH ROW EXECUTE FUNCTION pgsched.file_entries_object();

-- The entry of an object goes with it: else the next owner of the name would find it declared by another one's file. Of a job
-- that has deleted itself a note stays, so that an apply does not make it again.
CREATE FUNCTION pgsched.file_entries_of_jobs() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgsched.file_entries d USING gone g, pgsched.file_entries e
    WHERE e.what = 'job' AND e.name = g.name AND e.object_id = g.id AND d.what = 'done' AND (d.owner, d.name) = (e.owner, e.name)
        AND g.delete_after_run AND g.schedule IS NULL AND g.next_run_at IS NULL;
    UPDATE pgsched.file_entries e SET what = 'done' FROM gone g
    WHERE e.what = 'job' AND e.name = g.name AND e.object_id = g.id
        AND g.delete_after_run AND g.schedule IS NULL AND g.next_run_at IS NULL;
    DELETE FROM pgsched.file_entries e USING gone g
    WHERE e.what = 'job' AND e.name = g.name AND e.object_id = g.id;
    RETURN NULL;
END $$;
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.jobs REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_jobs();

CREATE FUNCTION pgsched.file_entries_of_others() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgsched.file_entries e USING (SELECT to_jsonb(o) AS row FROM gone o) g
    WHERE e.what = TG_ARGV[0] AND (e.object_id IS NULL OR e.object_id = (g.row ->> 'id')::bigint)
        AND e.name = CASE TG_ARGV[0] WHEN 'pause' THEN concat_ws(' ', g.row ->> 'what', nullif(g.row ->> 'name', ''))
                     ELSE g.row ->> 'name' END;
    RETURN NULL;
END $$;
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.calendars REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_others('calendar');
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.queues REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_others('queue');
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.limits REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_others('limit');
CREATE TRIGGER g_file_entries AFTER DELETE ON pgsched.pauses REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.file_entries_of_others('pause');

-- A job or calendar that a person renames stays declared, under its new name.
CREATE FUNCTION pgsched.file_entries_renamed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM pgsched.file_entries
    WHERE what = TG_ARGV[0] AND name = NEW.name AND object_id IS DISTINCT FROM NEW.id;  -- its object is gone
    UPDATE pgsched.file_entries SET name = NEW.name
    WHERE what = TG_ARGV[0] AND name = OLD.name AND object_id = NEW.id;
    RETURN NULL;
END $$;
CREATE TRIGGER g_file_entries_renamed AFTER UPDATE OF name ON pgsched.jobs FOR EACH ROW WHEN (OLD.name <> NEW.name)
    EXECUTE FUNCTION pgsched.file_entries_renamed('job');
CREATE TRIGGER g_file_entries_renamed AFTER UPDATE OF name ON pgsched.calendars FOR EACH ROW WHEN (OLD.name <> NEW.name)
    EXECUTE FUNCTION pgsched.file_entries_renamed('calendar');

-- One note for each statement and owner: an apply may declare thousands of objects. That a job has deleted itself is no
-- person's change.
CREATE FUNCTION pgsched.audit_file_entries() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note(TG_ARGV[0], 'file', c.owner, jsonb_build_object('objects', c.objects, 'some', to_jsonb(c.some)))
    FROM (SELECT e.owner, count(*) AS objects, (array_agg(e.what || ' ' || e.name ORDER BY e.what, e.name))[:20] AS some
          FROM changed e WHERE e.what <> 'done' GROUP BY e.owner) c;
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
