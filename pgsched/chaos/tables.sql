-- tables: tables and triggers of the chaos suite, beside pgsched's own tables.
-- ledger: what handlers did. gates: handlers wait until a gate is here.
-- trips: points at which the leader stops inside its tick, until the stage releases the lock.
-- journal: every change of a run, of a job's high-water mark and of the leader's row, in the transaction that made it.
-- One sequence numbers the ledger and the journal. So a change of a run has a higher number than all that happened to
-- the run before, whatever the clocks show.
-- params: none
-- returns: nothing
-- locks: ACCESS EXCLUSIVE on runs, jobs and leader for a moment (triggers)
CREATE SCHEMA chaos;
CREATE SEQUENCE chaos.seq;
CREATE TABLE chaos.ledger (
    seq bigint NOT NULL DEFAULT nextval('chaos.seq') PRIMARY KEY,
    run_id bigint NOT NULL, token uuid NOT NULL, event text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(), pid int NOT NULL
);
CREATE INDEX ledger_run ON chaos.ledger (run_id, event);
CREATE TABLE chaos.gates (name text PRIMARY KEY);
CREATE TABLE chaos.trips (name text PRIMARY KEY);
CREATE TABLE chaos.journal (
    seq bigint NOT NULL DEFAULT nextval('chaos.seq') PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(), backend int NOT NULL DEFAULT pg_backend_pid(),
    what text NOT NULL, op text NOT NULL, id bigint NOT NULL,
    job_id bigint, slot timestamptz, covers_from timestamptz, covers_until timestamptz,
    state text, token uuid, attempt int, lease_until timestamptz, worker_id bigint,
    mark timestamptz, pid int, closed boolean
);
CREATE FUNCTION chaos.note_run() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
BEGIN
    INSERT INTO chaos.journal (what, op, id, job_id, slot, covers_from, covers_until, state, token, attempt, lease_until,
                               worker_id)
    VALUES ('run', lower(TG_OP), r.id, r.job_id, r.scheduled_at, r.covers_from, r.covers_until, r.state, r.token,
            r.attempt, r.lease_until, r.worker_id);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.note_job() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO chaos.journal (what, op, id, mark) VALUES ('job', lower(TG_OP), NEW.id, NEW.decided_until);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.note_term() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO chaos.journal (what, op, id, pid, closed)
    VALUES ('term', lower(TG_OP), NEW.term, NEW.pid, NEW.resigned_at IS NOT NULL);
    RETURN NULL;
END $$;
CREATE FUNCTION chaos.trip() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('application_name') LIKE 'pgsched leader%'
        AND EXISTS (SELECT FROM chaos.trips t WHERE t.name = TG_ARGV[0])
    THEN
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('chaos.trip', 0));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER zz_trip_before BEFORE INSERT ON pgsched.runs
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.trip('before insert');
CREATE TRIGGER zz_trip_after AFTER INSERT ON pgsched.runs
    FOR EACH STATEMENT EXECUTE FUNCTION chaos.trip('after insert');
CREATE TRIGGER zz_chaos AFTER INSERT OR UPDATE OR DELETE ON pgsched.runs FOR EACH ROW EXECUTE FUNCTION chaos.note_run();
CREATE TRIGGER zz_chaos AFTER INSERT OR UPDATE ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION chaos.note_job();
CREATE TRIGGER zz_chaos AFTER INSERT OR UPDATE ON pgsched.leader FOR EACH ROW EXECUTE FUNCTION chaos.note_term();
