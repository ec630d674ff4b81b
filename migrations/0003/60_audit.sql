-- Who changed what, and when: one row for each change that a person made to a job, a queue, a limit, a pause or a run.
-- Only people's changes: what the leader and the workers write fires none of these triggers. A job that goes by itself
-- (delete_after_run) is not a person's change either.

CREATE TABLE pgsched.audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    who         text NOT NULL DEFAULT session_user,
    acting_as   text,  -- the role that the session had set, null: none
    application text DEFAULT current_setting('application_name'),
    address     inet DEFAULT inet_client_addr(),
    action      text NOT NULL,
    what        text NOT NULL CHECK (what IN ('job', 'run', 'backfill', 'queue', 'limit', 'pause')),
    name        text NOT NULL,
    change      jsonb  -- of an edit {column: [before, after]}, else what was made, taken away or asked for
);
CREATE INDEX audit_of ON pgsched.audit (what, name, id);
CREATE INDEX audit_at ON pgsched.audit (at);

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
CREATE TRIGGER f_audit_insert AFTER INSERT ON pgsched.jobs REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_jobs_added();

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
-- the columns that people write (a_check_update), and none that the leader does
CREATE TRIGGER f_audit_update AFTER UPDATE OF name, kind, task, args, queue, priority, tags, schedule, timezone, run_at,
        starts_at, ends_at, max_runs, jitter, delete_after_run, overlap, max_buffer, retry_within, misfire_after, catch_up,
        max_catch_up, catch_up_window, start_deadline, max_attempts, timeout, kill_after, backoff, backoff_base,
        backoff_max, backoff_jitter, success_codes, retry_codes, dead_codes, concurrency_key, concurrency_limit, after_jobs,
        paused, paused_by, paused_reason, resume_from, declared_by, description, owner
    ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION pgsched.audit_jobs_changed();

CREATE FUNCTION pgsched.audit_jobs_gone() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note('deleted', 'job', g.name, pgsched.audited(to_jsonb(g))) FROM gone g
    WHERE NOT (g.delete_after_run AND g.next_run_at IS NULL);
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit_delete AFTER DELETE ON pgsched.jobs REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pgsched.audit_jobs_gone();

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
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency_limit, rate, rate_period, rate_burst, max_depth,
    on_full, fair, ageing ON pgsched.queues FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('queue');
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE OF name, concurrency, rate, rate_period, rate_burst, ordered, weight
    ON pgsched.limits FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('limit');
CREATE TRIGGER f_audit AFTER INSERT OR DELETE OR UPDATE
    ON pgsched.pauses FOR EACH ROW EXECUTE FUNCTION pgsched.audit_setting('pause');

-- ---- what people ask of runs: allowed for the runs of one's own (58_rights.sql), and noted

-- Cancels a run: at once if nobody runs it, else by asking its worker. Returns what happened:
-- cancelled, requested, or the terminal state it already had; NULL when there is no such run.
CREATE OR REPLACE FUNCTION pgsched.cancel(run_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    author text := format('cancelled by %s%s', session_user, coalesce(': ' || why, ''));
BEGIN
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR NO KEY UPDATE;
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner);
    IF r.phase >= 3 THEN
        RETURN r.state;
    END IF;
    PERFORM pgsched.note('cancelled', 'run', r.id::text,
        jsonb_build_object('state', r.state, 'task', left(r.task, 200), 'why', left(cancel.why, 1000)));
    IF r.state = 'running' THEN
        UPDATE pgsched.runs SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
            cancel_reason = author WHERE id = run_id;
        PERFORM pg_notify('pgsched_cancel', run_id::text);
        RETURN 'requested';
    END IF;
    UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp(), reason = author WHERE id = run_id;
    PERFORM pg_notify('pgsched_leader', 'runs');
    RETURN 'cancelled';
END $$;

-- Ends a backfill as one thing: nothing more is started, its unstarted runs are cancelled and its running ones asked to
-- stop. Returns cancelled; finished where it had ended already; NULL when there is no such backfill.
CREATE OR REPLACE FUNCTION pgsched.cancel_backfill(backfill_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    b pgsched.backfills;
    author text := format('%s%s', session_user, coalesce(': ' || cancel_backfill.why, ''));
BEGIN
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
    FROM (SELECT id FROM pgsched.runs WHERE backfill_id = b.id AND phase < 3 ORDER BY id) r;
    RETURN 'cancelled';
END $$;

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
    PERFORM pg_notify('pgsched_leader', 'backfills');
    RETURN new_id;
END $$;

-- Backfills are made by the function above and by plain INSERT.
CREATE FUNCTION pgsched.audit_backfills() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.note('created', 'backfill', NEW.id::text, jsonb_build_object('job', NEW.job, 'from', NEW.from_at,
        'to', NEW.to_at, 'mode', NEW.mode, 'max_active', NEW.max_active));
    RETURN NULL;
END $$;
CREATE TRIGGER f_audit AFTER INSERT ON pgsched.backfills FOR EACH ROW EXECUTE FUNCTION pgsched.audit_backfills();
