-- How long ended runs are kept: for each outcome, by job, else by queue, else for everything.
--
-- keep: {"succeeded": "1 day", "dead": "90 days", "any": "7 days"}; its keys are outcomes, and `any` for all that are not
-- named. What a job says goes before what its queue says, and that before what holds for everything; within each an
-- outcome that is named goes before `any`.

CREATE FUNCTION pgsched.keep_error(keep jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    outcome text;
    value jsonb;
    problem text;
BEGIN
    IF jsonb_typeof(keep) <> 'object' THEN
        RETURN 'keep: expected an object such as {"succeeded": "1 day", "any": "7 days"}';
    END IF;
    FOR outcome, value IN SELECT * FROM jsonb_each(keep) LOOP
        IF outcome NOT IN ('succeeded', 'dead', 'cancelled', 'skipped', 'missed', 'any') THEN
            RETURN format('keep: "%s" is not one of succeeded, dead, cancelled, skipped, missed, any', left(outcome, 50));
        END IF;
        BEGIN
            problem := pgsched.bad_interval('keep: ' || outcome, (value #>> '{}')::interval, '0');
        EXCEPTION WHEN data_exception THEN
            problem := format('keep: %s: %s is not an interval', outcome, left(value::text, 50));
        END;
        IF problem IS NOT NULL OR jsonb_typeof(value) <> 'string' THEN
            RETURN coalesce(problem, format('keep: %s: %s is not an interval: it needs a unit', outcome, left(value::text, 50)));
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE FUNCTION pgsched.refuse_keep() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := pgsched.keep_error(NEW.keep);
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, TG_TABLE_NAME);
    END IF;
    RETURN NEW;
END $$;

-- How long an ended run is kept, by what its job, its queue and the settings for everything say.
CREATE FUNCTION pgsched.keep_of(state text, of_job jsonb, of_queue jsonb, of_all jsonb) RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT coalesce(of_job ->> state, of_job ->> 'any', of_queue ->> state, of_queue ->> 'any',
                    of_all ->> state, of_all ->> 'any', '7 days')::interval
$$;

ALTER TABLE pgsched.jobs ADD COLUMN keep jsonb;
CREATE INDEX jobs_keep ON pgsched.jobs (id) WHERE keep IS NOT NULL;
CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.jobs
    FOR EACH ROW WHEN (NEW.keep IS NOT NULL) EXECUTE FUNCTION pgsched.refuse_keep();

ALTER TABLE pgsched.queues ADD COLUMN keep jsonb;
CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.queues
    FOR EACH ROW WHEN (NEW.keep IS NOT NULL) EXECUTE FUNCTION pgsched.refuse_keep();
CREATE OR REPLACE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency_limit, rate, rate_period, rate_burst,
    max_depth, on_full, fair, ageing, keep ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('queue');

-- What holds for everything; one row. keep_minutes, keep_hours: of the figures in pgsched.rollups.
CREATE TABLE pgsched.retention (
    name         text PRIMARY KEY DEFAULT 'everything' CHECK (name = 'everything'),
    keep         jsonb NOT NULL DEFAULT '{"any": "7 days"}',
    archive      boolean NOT NULL DEFAULT false,  -- runs that go are put into pgsched.archived_runs
    keep_minutes interval NOT NULL DEFAULT '3 days' CHECK (keep_minutes BETWEEN '1 hour' AND '10 years'),
    keep_hours   interval NOT NULL DEFAULT '400 days' CHECK (keep_hours BETWEEN '1 day' AND '100 years')
);
INSERT INTO pgsched.retention DEFAULT VALUES;
CREATE TRIGGER a_refuse_keep BEFORE INSERT OR UPDATE OF keep ON pgsched.retention
    FOR EACH ROW EXECUTE FUNCTION pgsched.refuse_keep();
ALTER TABLE pgsched.audit DROP CONSTRAINT audit_what_check,
    ADD CONSTRAINT audit_what_check CHECK
        (what IN ('job', 'run', 'backfill', 'queue', 'limit', 'pause', 'retention')) NOT VALID;
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE ON pgsched.retention
    FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('retention');

-- Runs that went, if the settings say so: written in the transaction that deletes them. `run` is the whole row with its
-- attempts and its output. Nothing in pgsched reads this table; partition, move or empty it as you like.
CREATE TABLE pgsched.archived_runs (
    run_id       bigint PRIMARY KEY,
    job_id       bigint,
    job          text,
    queue        text NOT NULL,
    task         text NOT NULL,
    state        text NOT NULL,
    scheduled_at timestamptz,
    finished_at  timestamptz NOT NULL,
    archived_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    run          jsonb NOT NULL
);
