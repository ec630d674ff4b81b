-- Excluded dates put off the slots of @after, so its jobs are planned anew; other slots stay where they are, and whether
-- one is excluded is asked when it is due.
CREATE OR REPLACE FUNCTION pgsched.job_calendars_after() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE pgsched.jobs SET next_run_at = clock_timestamp()
    WHERE id IN (OLD.job_id, NEW.job_id) AND schedule IS NOT NULL AND next_run_at > clock_timestamp();
    PERFORM pgsched.notify('pgsched_leader', 'jobs');
    RETURN NULL;
END $$;

-- The leader reads the stretches of a job whenever a slot of it is due: there are not more of them than that allows.
CREATE FUNCTION pgsched.job_calendars_most() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    most constant integer := 5000;
BEGIN
    IF EXISTS (SELECT FROM (SELECT DISTINCT job_id FROM added) a WHERE (SELECT count(*) FROM (
            SELECT FROM pgsched.job_calendars c WHERE c.job_id = a.job_id LIMIT most + 1) found) > most) THEN
        PERFORM pgsched.raise_bad_value(
            format('from_date: a job has at most %s stretches of excluded dates', most), 'job_calendars');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER b_most AFTER INSERT ON pgsched.job_calendars REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.job_calendars_most();

-- Asks for the slots of a job in [from_at, to_at) once more; returns the backfill's id. Slots that are not decided yet
-- are left to the schedule. What is wrong is refused here, but for the number of slots: the leader counts them, and ends
-- a backfill that has none or too many with that as its error.
CREATE OR REPLACE FUNCTION pgsched.backfill(job text, from_at timestamptz, to_at timestamptz, mode text DEFAULT 'missing',
    max_active integer DEFAULT 1, reverse boolean DEFAULT false, priority integer DEFAULT 9) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    j pgsched.jobs;
    decided timestamptz;
    problem text := coalesce(
        CASE WHEN backfill.from_at IS NULL THEN 'from_at: must not be null'
             WHEN backfill.to_at IS NULL THEN 'to_at: must not be null' END,
        pgsched.bad_instant('from_at', backfill.from_at),
        pgsched.bad_instant('to_at', backfill.to_at),
        CASE WHEN backfill.from_at >= backfill.to_at THEN
            format('to_at: %s is not later than %s', backfill.to_at, backfill.from_at) END,
        CASE WHEN backfill.to_at - backfill.from_at > interval '36525 days' THEN
            'to_at: the range is longer than 100 years: ask for a shorter one' END,
        pgsched.not_one_of('mode', backfill.mode, ARRAY['missing', 'failed', 'all']),
        pgsched.out_of_range('max_active', backfill.max_active, 1, 1000),
        pgsched.out_of_range('priority', backfill.priority, 0, 9),
        CASE WHEN backfill.reverse IS NULL THEN 'reverse: must not be null' END);
    new_id bigint;
BEGIN
    SELECT * INTO j FROM pgsched.jobs WHERE name = backfill.job;
    IF problem IS NULL AND j.id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'no_data_found', MESSAGE = format('job: there is no job named "%s"', backfill.job);
    END IF;
    PERFORM pgsched.refuse_others(format('job "%s"', j.name), j.owner) WHERE j.id IS NOT NULL;
    decided := least(clock_timestamp(), j.decided_until + interval '1 microsecond');
    problem := coalesce(problem,
        CASE WHEN coalesce(ltrim(j.schedule) ILIKE '@after%', true) THEN format(
                 'job: %s has no schedule whose past slots are known: only cron and @every have them', j.name)
             WHEN backfill.from_at >= decided THEN format(
                 'from_at: job %s is decided until %s: slots after that are the schedule''s to decide', j.name, decided)
        END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'backfills');
    END IF;
    INSERT INTO pgsched.backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at, mode, max_active,
        reverse, priority)
    VALUES (j.id, j.name, j.schedule, j.timezone, j.anchor_at, backfill.from_at, least(backfill.to_at, decided),
        backfill.mode, backfill.max_active, backfill.reverse, backfill.priority::smallint)
    RETURNING id INTO new_id;
    PERFORM pgsched.notify('pgsched_leader', 'backfills');
    RETURN new_id;
END $$;

-- Ends a backfill as one thing: nothing more is started, its unstarted runs are cancelled and its running ones asked to
-- stop, each with the reason. Returns cancelled; finished where it had ended already; NULL when there is no such backfill.
CREATE OR REPLACE FUNCTION pgsched.cancel_backfill(backfill_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    b pgsched.backfills;
    author text := format('%s%s', session_user, coalesce(': ' || cancel_backfill.why, ''));
BEGIN
    IF length(why) > 9000 THEN  -- with some words more, it is the reason of each run (cancel)
        PERFORM pgsched.raise_bad_value(pgsched.bad_length('why', why, 9000), 'backfills');
    END IF;
    PERFORM pgsched.refuse_others(format('backfill %s', o.id), (SELECT j.owner FROM pgsched.jobs j WHERE j.id = o.job_id))
    FROM pgsched.backfills o WHERE o.id = cancel_backfill.backfill_id;  -- before it is locked (45_control.sql)
    -- the leader holds this row while it starts runs: none can be born after the loop below has looked
    SELECT * INTO b FROM pgsched.backfills WHERE id = cancel_backfill.backfill_id FOR UPDATE;
    IF b.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('backfill %s', b.id), (SELECT j.owner FROM pgsched.jobs j WHERE j.id = b.job_id));
    IF b.finished_at IS NOT NULL THEN
        RETURN CASE WHEN b.cancelled_at IS NULL THEN 'finished' ELSE 'cancelled' END;
    END IF;
    PERFORM pgsched.note('cancelled', 'backfill', b.id::text,
        jsonb_build_object('job', b.job, 'why', left(cancel_backfill.why, 1000)));
    UPDATE pgsched.backfills SET cancelled_at = clock_timestamp(), finished_at = clock_timestamp(),
        cancelled_by = author WHERE id = b.id;
    PERFORM pgsched.cancel(r.id, format('backfill %s was cancelled%s', b.id, coalesce(': ' || cancel_backfill.why, '')))
    FROM (SELECT id FROM pgsched.runs WHERE backfill_id = b.id AND phase < 3 /* open */ ORDER BY id) r;
    RETURN 'cancelled';
END $$;
