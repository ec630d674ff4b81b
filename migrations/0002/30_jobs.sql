-- What an edit or a resume does to a job's slots: those that it passes over are noted, whatever kind of job it is.

CREATE OR REPLACE FUNCTION pgsched.jobs_before_update() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    problem text;
    replanned boolean := (NEW.schedule, NEW.timezone, NEW.run_at, NEW.starts_at)
                         IS DISTINCT FROM (OLD.schedule, OLD.timezone, OLD.run_at, OLD.starts_at);
    -- the slot of a job that runs once is run_at, whatever its time zone
    retimed boolean := replanned AND (NEW.schedule IS NOT NULL OR OLD.schedule IS NOT NULL
                                      OR NEW.run_at IS DISTINCT FROM OLD.run_at);
    resumed boolean := OLD.paused AND NOT NEW.paused;
    from_now boolean := NEW.resume_from = 'now';
    ended boolean := NEW.schedule IS NOT NULL AND NOT retimed AND OLD.next_run_at IS NULL AND OLD.error IS NULL;
    was pgsched.jobs := OLD;
BEGIN
    IF NEW.schedule IS NOT NULL AND OLD.schedule IS NULL AND NEW.run_at IS NOT DISTINCT FROM OLD.run_at THEN
        NEW.run_at := NULL;  -- a job that was to run once gets a schedule; the insert may have filled run_at in
    END IF;
    problem := pgsched.job_error(NEW);
    IF NEW.owner IS DISTINCT FROM OLD.owner THEN
        problem := coalesce(problem, pgsched.bad_owner(NEW.owner));
    ELSIF (NEW.kind, NEW.task, NEW.args) IS DISTINCT FROM (OLD.kind, OLD.task, OLD.args)
          AND pgsched.bad_owner(OLD.owner) IS NOT NULL THEN
        NEW.owner := current_user;  -- who says what runs, and may not act for the owner, becomes it
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    NEW.id := OLD.id;
    NEW.created_at := OLD.created_at;
    NEW.updated_at := moment;
    IF NEW.paused AND NOT OLD.paused THEN
        NEW.paused_at := moment;
        NEW.paused_by := coalesce(NEW.paused_by, session_user);
    ELSIF NOT NEW.paused THEN
        NEW.paused_at := NULL;
        NEW.paused_by := NULL;
        NEW.paused_reason := NULL;
        NEW.resume_from := 'now';
    END IF;
    IF retimed OR resumed AND from_now THEN
        IF NOT retimed THEN
            was.ends_at := NEW.ends_at;
        END IF;
        PERFORM pgsched.pass_over(was, moment, retimed);
    END IF;
    IF replanned THEN
        NEW.error := NULL;
        NEW.error_at := NULL;
    END IF;
    IF NEW.schedule IS NULL THEN
        IF retimed OR resumed AND from_now THEN
            -- passed over is decided: neither the old slots nor one among them may come again
            NEW.decided_until := greatest(OLD.decided_until, CASE
                WHEN OLD.schedule IS NOT NULL THEN moment - interval '1 microsecond'
                WHEN OLD.run_at <= moment THEN OLD.run_at END);
        END IF;
        IF retimed THEN
            NEW.run_at := coalesce(NEW.run_at, moment);
            IF NEW.run_at <= NEW.decided_until THEN
                PERFORM pgsched.raise_bad_value(format(
                    'run_at: %s is not later than %s, which is already decided', NEW.run_at, NEW.decided_until),
                    'jobs');
            END IF;
        END IF;
        IF replanned OR resumed THEN
            NEW.next_run_at := CASE WHEN NEW.run_at > NEW.decided_until THEN NEW.run_at END;
        END IF;
        RETURN NEW;
    END IF;
    IF retimed THEN
        NEW.anchor_at := coalesce(NEW.starts_at, moment);
        NEW.decided_until := greatest(OLD.decided_until, moment, NEW.starts_at - interval '1 microsecond');
        NEW.next_run_at := moment;
    ELSIF ended THEN
        IF (NEW.ends_at, NEW.max_runs) IS DISTINCT FROM (OLD.ends_at, OLD.max_runs)
           AND pgsched.pass_over_end(OLD, NEW, moment) THEN
            NEW.decided_until := greatest(OLD.decided_until, least(moment, NEW.ends_at));
            NEW.next_run_at := moment;
        END IF;
    ELSIF resumed AND from_now THEN
        -- never beyond the end: what comes behind it is passed over by the edit that puts the end off
        NEW.decided_until := greatest(OLD.decided_until, least(moment, NEW.ends_at));
        NEW.next_run_at := moment;
    ELSIF resumed THEN
        NEW.next_run_at := coalesce(OLD.next_run_at, moment);  -- the mark stays: catch_up decides what came since
    ELSIF (NEW.ends_at, NEW.max_runs) IS DISTINCT FROM (OLD.ends_at, OLD.max_runs) THEN
        NEW.next_run_at := moment;  -- the leader plans it again
    END IF;
    RETURN NEW;
END $$;
