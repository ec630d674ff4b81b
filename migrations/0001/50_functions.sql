-- What any client in any language may call. Each is one statement to its caller and safe to repeat.

-- Does this attempt still own its run? Raises inside the caller's transaction if not, and holds ownership until
-- that transaction ends: FOR KEY SHARE lets heartbeats and settlement through, but whoever takes a claim away
-- (reaper, terminate) locks FOR UPDATE first and has to wait or pass by.
CREATE FUNCTION pgsched.assert_claim(run_id bigint, claim_token uuid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM pgsched.runs r WHERE r.id = run_id AND r.token = claim_token AND r.state = 'running' FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('claim of run %s is lost: another attempt owns it or it has ended', run_id);
    END IF;
END $$;

-- Cancels a run: at once if nobody runs it, else by asking its worker. Returns what happened:
-- cancelled, requested, or the terminal state it already had; NULL when there is no such run.
CREATE FUNCTION pgsched.cancel(run_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    author text := format('cancelled by %s%s', session_user, coalesce(': ' || why, ''));
BEGIN
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR NO KEY UPDATE;
    IF r.id IS NULL THEN
        RETURN NULL;
    ELSIF r.phase >= 3 THEN
        RETURN r.state;
    ELSIF r.state = 'running' THEN
        UPDATE pgsched.runs SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
            cancel_reason = author WHERE id = run_id;
        PERFORM pg_notify('pgsched_cancel', run_id::text);
        RETURN 'requested';
    END IF;
    UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp(), reason = author WHERE id = run_id;
    PERFORM pg_notify('pgsched_leader', 'runs');
    RETURN 'cancelled';
END $$;

-- Revives a dead, cancelled, missed or skipped run with at least one more attempt. Returns the new state, or
-- the unchanged one when it is not ended (or succeeded); NULL when there is no such run.
CREATE FUNCTION pgsched.retry(run_id bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
BEGIN
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR UPDATE;
    IF r.id IS NULL THEN
        RETURN NULL;
    ELSIF r.state NOT IN ('dead', 'cancelled', 'missed', 'skipped') THEN
        RETURN r.state;
    ELSIF EXISTS (SELECT FROM pgsched.runs o WHERE o.unique_key = r.unique_key AND o.phase < 3) THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', COLUMN = 'unique_key', MESSAGE =
            format('unique_key: an unfinished run has the key "%s" of run %s already', r.unique_key, run_id);
    END IF;
    UPDATE pgsched.runs SET state = 'queued', finished_at = NULL, token = NULL, available_at = clock_timestamp(),
        crashes = 0, max_attempts = least(1000, greatest(max_attempts, attempt + 1)), cancel_requested_at = NULL,
        cancel_reason = NULL, reason = NULL, expires_at = NULL
    WHERE id = run_id;
    PERFORM pg_notify('pgsched_runs', r.queue);
    RETURN 'queued';
END $$;

-- Settings that only some kinds need travel in one nullable column, so that ordinary runs stay small.
CREATE FUNCTION pgsched.job_options(j pgsched.jobs) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN j.kind IN ('command', 'shell') AND
                     (j.success_codes <> '{0}' OR j.retry_codes IS NOT NULL OR j.dead_codes IS NOT NULL)
        THEN jsonb_build_object('success_codes', j.success_codes, 'retry_codes', j.retry_codes,
                                'dead_codes', j.dead_codes) END
$$;

-- Enqueues one ad-hoc run; with a unique_key that an unfinished run already has, returns that run's id.
CREATE FUNCTION pgsched.enqueue(task text, args jsonb DEFAULT '{}', kind text DEFAULT 'python',
    queue text DEFAULT 'default', priority integer DEFAULT 5, delay interval DEFAULT NULL,
    available_at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL, max_attempts integer DEFAULT 3,
    timeout interval DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    new_id bigint;
BEGIN
    LOOP
        INSERT INTO pgsched.runs (task, args, kind, queue, priority, available_at, unique_key, max_attempts, timeout)
        VALUES (enqueue.task, enqueue.args, enqueue.kind, enqueue.queue, enqueue.priority::smallint,
                coalesce(enqueue.available_at, clock_timestamp() + coalesce(enqueue.delay, interval '0')),
                enqueue.unique_key, enqueue.max_attempts, enqueue.timeout)
        ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND phase < 3 DO NOTHING
        RETURNING id INTO new_id;
        IF new_id IS NULL THEN
            SELECT r.id INTO new_id FROM pgsched.runs r WHERE r.unique_key = enqueue.unique_key AND r.phase < 3;
        END IF;
        -- the run that was in the way may have ended between the two statements: try again
        EXIT WHEN new_id IS NOT NULL;
    END LOOP;
    RETURN new_id;
END $$;
