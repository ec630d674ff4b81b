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

-- Dates on which a job does not run, and workers that were asked to end: people change these as well.
ALTER TABLE pgsched.audit DROP CONSTRAINT audit_what_check;
ALTER TABLE pgsched.audit ADD CONSTRAINT audit_what_check
    CHECK (what IN ('job', 'run', 'backfill', 'queue', 'limit', 'pause', 'retention', 'worker')) NOT VALID;
ALTER TABLE pgsched.audit VALIDATE CONSTRAINT audit_what_check;

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
    PERFORM pgsched.note('drained', 'worker', NEW.name, jsonb_build_object('by', NEW.drain_asked_by));
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit AFTER UPDATE OF drain_asked_at ON pgsched.workers
    FOR EACH ROW WHEN (NEW.drain_asked_at IS NOT NULL AND OLD.drain_asked_at IS NULL)
    EXECUTE FUNCTION pgsched.audit_drains();
