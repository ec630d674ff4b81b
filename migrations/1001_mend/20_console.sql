-- The person for whom a console changed something.
ALTER TABLE pgsched.audit ADD COLUMN for_user text;
COMMENT ON COLUMN pgsched.audit.for_user IS
    'The person for whom the session acted, as a login of pgsched_console or of the owner of this table said; null: nobody was named.';

-- Any login can set pgsched.user. It is believed of members of pgsched_console, a role for the logins of consoles, and of
-- who owns the audit, who could write there whatever he likes.
CREATE FUNCTION pgsched.acting_for() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT left(nullif(current_setting('pgsched.user', true), ''), 200)
    WHERE EXISTS (SELECT FROM pg_roles r
                  WHERE (r.rolname = 'pgsched_console'
                         OR r.oid = (SELECT c.relowner FROM pg_class c WHERE c.oid = 'pgsched.audit'::regclass))
                    AND pg_has_role(session_user, r.oid, 'MEMBER'))
$$;

-- Dates on which a job does not run, workers that were asked to end, tags, incidents and kept keys: people change these
-- as well.
ALTER TABLE pgsched.audit DROP CONSTRAINT audit_what_check;
ALTER TABLE pgsched.audit ADD CONSTRAINT audit_what_check
    CHECK (what IN ('job', 'run', 'backfill', 'queue', 'limit', 'pause', 'retention', 'worker', 'alert', 'key', 'task')) NOT VALID;

-- Not where the job itself was deleted, which is noted as such.
CREATE FUNCTION pgsched.audit_calendars() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was jsonb := CASE WHEN TG_OP <> 'INSERT' THEN jsonb_build_array(OLD.from_date, OLD.until_date, OLD.reason) END;
    is_now jsonb := CASE WHEN TG_OP <> 'DELETE' THEN jsonb_build_array(NEW.from_date, NEW.until_date, NEW.reason) END;
BEGIN
    IF was IS DISTINCT FROM is_now THEN
        PERFORM pgsched.note('changed', 'job', j.name, jsonb_build_object('excluded', jsonb_build_array(was, is_now)))
        FROM pgsched.jobs j WHERE j.id = CASE WHEN TG_OP = 'DELETE' THEN OLD.job_id ELSE NEW.job_id END;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit AFTER INSERT OR UPDATE OR DELETE ON pgsched.job_calendars
    FOR EACH ROW EXECUTE FUNCTION pgsched.audit_calendars();

CREATE FUNCTION pgsched.audit_drains() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note(CASE WHEN NEW.drain_asked_at IS NOT NULL AND OLD.drain_asked_at IS NULL THEN 'drained' ELSE 'changed' END,
        'worker', NEW.name, jsonb_build_object('by', NEW.drain_asked_by));
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit AFTER UPDATE OF drain_asked_at, drain_asked_by ON pgsched.workers
    FOR EACH ROW WHEN (NEW.drain_asked_at IS DISTINCT FROM OLD.drain_asked_at
                       OR NEW.drain_asked_by IS DISTINCT FROM OLD.drain_asked_by)
    EXECUTE FUNCTION pgsched.audit_drains();

CREATE FUNCTION pgsched.audit_tags() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note('tagged', 'run', NEW.id::text, pgsched.audited_change(
        jsonb_build_object('tags', OLD.tags), jsonb_build_object('tags', NEW.tags)));
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit AFTER UPDATE OF tags ON pgsched.runs
    FOR EACH ROW WHEN (NEW.tags IS DISTINCT FROM OLD.tags) EXECUTE FUNCTION pgsched.audit_tags();

-- Not what the statements of the leader and of workers do (sql/alerts.sql), which say so by pgsched.watches. Of who may
-- not do their work that is not believed.
CREATE FUNCTION pgsched.audit_alerts() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('pgsched.watches', true) = 'on'
        AND has_table_privilege(pgsched.caller(), 'pgsched.alert_deliveries', 'INSERT') THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.note(CASE WHEN TG_OP = 'INSERT' THEN 'opened'
            WHEN NEW.closed_at IS NOT NULL AND OLD.closed_at IS NULL THEN 'closed' ELSE 'changed' END,
        'alert', NEW.id::text, pgsched.audited(jsonb_build_object('kind', NEW.kind, 'job', NEW.job, 'job_id', NEW.job_id,
            'details', left(NEW.details, 1000), 'recovery', left(NEW.recovery, 1000))));
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.alerts FOR EACH ROW EXECUTE FUNCTION pgsched.audit_alerts();
CREATE TRIGGER f_audit_update AFTER UPDATE OF closed_at, recovery ON pgsched.alerts FOR EACH ROW
    WHEN (NEW.closed_at IS DISTINCT FROM OLD.closed_at OR NEW.recovery IS DISTINCT FROM OLD.recovery)
    EXECUTE FUNCTION pgsched.audit_alerts();

-- A key that still stands for a run; one that has expired, or was never bound, goes by itself.
CREATE FUNCTION pgsched.audit_keys() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note('deleted', 'key', left(OLD.key, 500),
        jsonb_build_object('scope', left(OLD.scope, 500), 'run', OLD.run_id, 'expires_at', OLD.expires_at));
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit AFTER DELETE ON pgsched.kept_keys
    FOR EACH ROW WHEN (OLD.run_id IS NOT NULL AND OLD.expires_at > clock_timestamp())
    EXECUTE FUNCTION pgsched.audit_keys();

-- A release of a task; not one with so many newer ones that pgsched.register_tasks deletes it.
CREATE FUNCTION pgsched.audit_tasks() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (SELECT count(*) FROM pgsched.tasks t
        WHERE t.task = OLD.task AND t.app = OLD.app AND t.first_seen_at > OLD.first_seen_at) < pgsched.releases_kept() THEN
        PERFORM pgsched.note('deleted', 'task', OLD.task, jsonb_build_object('app', OLD.app, 'release', OLD.release));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit AFTER DELETE ON pgsched.tasks FOR EACH ROW EXECUTE FUNCTION pgsched.audit_tasks();
