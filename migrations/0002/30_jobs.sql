-- What an edit or a resume does to a job's slots: those that it passes over are noted, whatever kind of job it is. The mark
-- (decided_until) says what is decided: it rises to now where slots are passed over, and never beyond.

CREATE OR REPLACE FUNCTION pgsched.jobs_before_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    problem text := coalesce(pgsched.job_error(NEW), pgsched.bad_owner(NEW.owner));
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    NEW.created_at := moment;
    NEW.updated_at := moment;
    NEW.anchor_at := coalesce(NEW.starts_at, moment);
    NEW.run_count := 0;
    NEW.error := NULL;
    NEW.error_at := NULL;
    IF NEW.schedule IS NULL THEN
        NEW.run_at := coalesce(NEW.run_at, moment);
        NEW.decided_until := '-infinity';
        NEW.next_run_at := NEW.run_at;
    ELSE
        NEW.decided_until := moment;  -- only slots after this instant exist
        NEW.next_run_at := moment;  -- due at once: the leader plans it
    END IF;
    IF NEW.paused THEN
        NEW.paused_at := moment;
        NEW.paused_by := coalesce(NEW.paused_by, session_user);
    ELSE
        NEW.paused_at := NULL;
        NEW.paused_by := NULL;
        NEW.paused_reason := NULL;
        NEW.resume_from := 'now';
    END IF;
    RETURN NEW;
END $$;

-- The edit as it may be written; what is wrong with it is raised.
CREATE FUNCTION pgsched.edit_allowed(was pgsched.jobs, j pgsched.jobs) RETURNS pgsched.jobs
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
        j.owner := current_user;  -- who says what runs, and may not act for the owner, becomes it
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'jobs');
    END IF;
    RETURN j;
END $$;

-- Who paused it, since when and why: kept while it is paused.
CREATE FUNCTION pgsched.edit_pause(was pgsched.jobs, j pgsched.jobs, moment timestamptz) RETURNS pgsched.jobs
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF j.paused THEN
        j.paused_at := CASE WHEN was.paused THEN was.paused_at ELSE moment END;
        j.paused_by := coalesce(j.paused_by, CASE WHEN was.paused THEN was.paused_by END, session_user);
    ELSE
        j.paused_at := NULL;
        j.paused_by := NULL;
        j.paused_reason := NULL;
        j.resume_from := 'now';
    END IF;
    RETURN j;
END $$;

-- The slots of a job with a schedule after an edit. `resumed`: from what the edit resumes it, null where it does not.
CREATE FUNCTION pgsched.edit_schedule(was pgsched.jobs, j pgsched.jobs, moment timestamptz, resumed text)
RETURNS pgsched.jobs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    limits_moved boolean := (j.ends_at, j.max_runs) IS DISTINCT FROM (was.ends_at, was.max_runs);
BEGIN
    IF (j.schedule, j.timezone, j.run_at, j.starts_at)
       IS DISTINCT FROM (was.schedule, was.timezone, was.run_at, was.starts_at) THEN
        PERFORM pgsched.pass_over(was, moment, true);
        j.anchor_at := coalesce(j.starts_at, moment);
        j.decided_until := greatest(was.decided_until, moment);
        IF j.decided_until > moment THEN
            PERFORM pgsched.pass_over_ahead(j, moment);
        END IF;
        j.error := NULL;
        j.error_at := NULL;
        j.next_run_at := moment;
    ELSIF was.next_run_at IS NULL AND was.error IS NULL THEN  -- it had ended
        IF limits_moved AND pgsched.pass_over_end(was, j, moment) THEN
            j.decided_until := greatest(was.decided_until, least(moment, j.ends_at));
            j.next_run_at := moment;
        END IF;
    ELSIF resumed = 'now' THEN
        was.ends_at := j.ends_at;
        PERFORM pgsched.pass_over(was, moment, false);
        -- never beyond the end: what comes behind it is passed over by the edit that puts the end off
        j.decided_until := greatest(was.decided_until, least(moment, j.ends_at));
        j.next_run_at := moment;
    ELSIF resumed = 'pause' THEN
        j.next_run_at := coalesce(was.next_run_at, moment);  -- the mark stays: catch_up decides what came since
    ELSIF limits_moved THEN
        j.next_run_at := moment;  -- the leader plans it again
    END IF;
    RETURN j;
END $$;

-- The slot of a job that runs once after an edit: what is passed over is decided, neither the old slots nor one among them
-- may come again.
CREATE FUNCTION pgsched.edit_once(was pgsched.jobs, j pgsched.jobs, moment timestamptz, resumed text)
RETURNS pgsched.jobs LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- its slot is run_at, whatever its time zone
    retimed boolean := was.schedule IS NOT NULL OR j.run_at IS DISTINCT FROM was.run_at;
    replanned boolean := retimed OR (j.timezone, j.starts_at) IS DISTINCT FROM (was.timezone, was.starts_at);
BEGIN
    IF retimed OR resumed = 'now' THEN
        IF NOT retimed THEN
            was.ends_at := j.ends_at;
        END IF;
        PERFORM pgsched.pass_over(was, moment, retimed);
        j.decided_until := greatest(was.decided_until, CASE
            WHEN was.schedule IS NOT NULL THEN moment - interval '1 microsecond'
            WHEN was.run_at <= moment THEN was.run_at END);
    END IF;
    IF retimed THEN
        j.run_at := coalesce(j.run_at, moment);
        IF j.run_at <= j.decided_until THEN
            PERFORM pgsched.raise_bad_value(format(
                'run_at: %s is not later than %s, which is already decided', j.run_at, j.decided_until), 'jobs');
        END IF;
    END IF;
    IF replanned THEN
        j.error := NULL;
        j.error_at := NULL;
    END IF;
    IF replanned OR resumed IS NOT NULL THEN
        j.next_run_at := CASE WHEN j.run_at > j.decided_until THEN j.run_at END;
    END IF;
    RETURN j;
END $$;

CREATE OR REPLACE FUNCTION pgsched.jobs_before_update() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    resumed text := CASE WHEN OLD.paused AND NOT NEW.paused THEN NEW.resume_from END;
BEGIN
    NEW := pgsched.edit_allowed(OLD, NEW);
    NEW.id := OLD.id;
    NEW.created_at := OLD.created_at;
    NEW.updated_at := moment;
    NEW := pgsched.edit_pause(OLD, NEW, moment);
    IF NEW.schedule IS NULL THEN
        RETURN pgsched.edit_once(OLD, NEW, moment, resumed);
    END IF;
    RETURN pgsched.edit_schedule(OLD, NEW, moment, resumed);
END $$;

-- Which slot is next, the leader says. Another answer would stop the job in silence: it is due now, and planned again.
-- A leader that was started before the upgrade goes on and does not set pgsched.ticks: it is known by the fence it holds.
CREATE FUNCTION pgsched.jobs_plan_again() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fence bigint := hashtextextended('pgsched.leader.fence', 0);  -- as in leader_fence in sql/leadership.sql
BEGIN
    IF NOT EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted
                       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                       AND (l.classid::bigint << 32) + l.objid::bigint = fence AND l.objsubid = 1) THEN
        NEW.next_run_at := clock_timestamp();
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER a_check_update BEFORE UPDATE OF id, name, kind, task, args, queue, priority, tags, schedule,
        timezone, run_at, starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer,
        retry_within, misfire_after, catch_up, max_catch_up, catch_up_window, start_deadline, max_attempts,
        timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter, success_codes, retry_codes,
        dead_codes, concurrency_key, concurrency_limit, after_jobs, paused, paused_at, paused_by, paused_reason,
        resume_from, declared_by, description, owner, created_at, updated_at
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.jobs_before_update();
-- tick_advance sets pgsched.ticks for its transaction
CREATE TRIGGER b_plan_again BEFORE UPDATE OF next_run_at ON pgsched.jobs
    FOR EACH ROW WHEN (current_setting('pgsched.ticks', true) IS DISTINCT FROM 'on' AND NEW.error IS NULL
                       AND NEW.next_run_at IS DISTINCT FROM OLD.next_run_at
                       AND (NEW.next_run_at IS NULL OR NEW.next_run_at > clock_timestamp()))
    EXECUTE FUNCTION pgsched.jobs_plan_again();
