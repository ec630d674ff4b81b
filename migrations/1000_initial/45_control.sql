-- What any client in any language may ask of runs and jobs. Each is one statement to its caller and safe to repeat; what
-- is asked of another's run is refused (23_rights.sql), and what is done is noted in pgsched.audit.

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
    IF length(why) > 10000 THEN  -- it becomes the run's reason, beside its error (runs_texts_size)
        PERFORM pgsched.raise_bad_value(pgsched.bad_length('why', why, 10000), 'runs');
    END IF;
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR NO KEY UPDATE;
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner);
    IF r.phase >= 3 /* ended */ THEN
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

-- The state that a settled attempt leaves its run in: the one rule for workers and reaper alike. A claim that was released
-- was never started; one that was snoozed asked to be started later.
CREATE FUNCTION pgsched.settled_state(outcome text, retry boolean, attempts_left boolean, cancel boolean)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN outcome = 'succeeded' THEN 'succeeded'
        WHEN outcome = 'cancelled' OR cancel THEN 'cancelled'
        WHEN outcome IN ('interrupted', 'released') THEN 'queued'
        WHEN outcome = 'snoozed' OR retry AND attempts_left THEN 'scheduled'
        ELSE 'dead' END
$$;

-- Late slots that are caught up one after the other wait, and are not held back by an overlap policy. Their reason is
-- the same, whole text in every row (pgsched/core/planning/overlap.py, IN_TURN). No search_path: it is to be inlined.
CREATE FUNCTION pgsched.waits_in_turn(reason text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(reason = 'catch_up: late, and one after the other', false)
$$;

-- Revives a dead, cancelled, missed or skipped run with at least one more attempt. Returns the new state, or the
-- unchanged one when it is not ended (or succeeded); NULL when there is no such run. The row of a stretch that did not run
-- is revived for its own slot. It starts whatever became of runs that it waited for; runs that still wait for it are let
-- go when it succeeds. Somebody asked for it: it is bound by neither its start deadline nor retry_within.
CREATE FUNCTION pgsched.retry_now(run_id bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    apart boolean;  -- a run that went wrong once for a whole stretch is tried again for all of it
BEGIN
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR UPDATE;
    apart := r.covers_state IS NULL AND r.covers_from < r.covers_until AND r.state IN ('missed', 'skipped');
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner);
    IF r.state NOT IN ('dead', 'cancelled', 'missed', 'skipped') THEN
        RETURN r.state;
    ELSIF EXISTS (SELECT FROM pgsched.runs o WHERE o.unique_key = r.unique_key AND o.phase < 3 /* open */) THEN
        RAISE EXCEPTION USING ERRCODE = 'check_violation', COLUMN = 'unique_key', MESSAGE =
            format('unique_key: an unfinished run has the key "%s" of run %s already', r.unique_key, run_id);
    END IF;
    PERFORM pgsched.note('retried', 'run', r.id::text, jsonb_build_object('state', r.state, 'task', left(r.task, 200)));
    -- a snapshot of the whole transaction may be older than the queue's limit: let the leader judge
    r.state := CASE WHEN pgsched.is_limited(r.queue, r.concurrency_key)
                        OR current_setting('transaction_isolation') <> 'read committed' THEN 'waiting' ELSE 'queued' END;
    UPDATE pgsched.runs SET state = r.state, finished_at = NULL, token = NULL, available_at = clock_timestamp(),
        ready_at = CASE r.state WHEN 'waiting' THEN clock_timestamp() END,
        crashes = 0, max_attempts = least(1000, greatest(max_attempts, attempt + 1)), cancel_requested_at = NULL,
        cancel_reason = NULL, reason = NULL, expires_at = NULL, held_until = NULL,
        has_children = (SELECT true FROM pgsched.dependencies d WHERE d.parent_id = r.id AND d.state = 'open' LIMIT 1),
        covers_state = CASE WHEN apart THEN state ELSE covers_state END,
        covers_reason = CASE WHEN apart THEN r.reason ELSE covers_reason END
    WHERE id = run_id;
    IF EXISTS (SELECT FROM pgsched.dependencies d WHERE d.run_id = r.id AND d.state <> 'met') THEN  -- a right of its own
        UPDATE pgsched.dependencies d SET state = 'met' WHERE d.run_id = r.id AND d.state <> 'met';
    END IF;
    PERFORM CASE r.state WHEN 'queued' THEN pg_notify('pgsched_runs', r.queue)
        ELSE pg_notify('pgsched_leader', 'runs') END;
    RETURN r.state;
END $$;

-- Revived runs wait again for what they waited for: for one that has not succeeded, too, until somebody revives that.
-- What was pruned meanwhile holds nothing back.
CREATE FUNCTION pgsched.wait_again(run_ids bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
BEGIN
    UPDATE pgsched.dependencies d SET
        state = CASE WHEN p.state IS NULL OR p.state = 'succeeded' OR p.phase >= 3 /* ended */ AND d.on_failure = 'run_anyway'
                     THEN 'met' ELSE 'open' END,
        on_failure = CASE WHEN p.phase >= 3 /* ended */ AND p.state <> 'succeeded' AND d.on_failure = 'cancel'
                          THEN 'wait' ELSE d.on_failure END
    FROM pgsched.dependencies e LEFT JOIN LATERAL (SELECT * FROM pgsched.runs r WHERE r.id = e.parent_id OFFSET 0) p ON true
    WHERE e.run_id = ANY (run_ids) AND d.run_id = e.run_id AND d.parent_id = e.parent_id;
    UPDATE pgsched.runs r SET state = 'waiting', ready_at = NULL, available_at = '8999-01-01 00:00Z'
    FROM (SELECT d.run_id FROM pgsched.dependencies d WHERE d.run_id = ANY (run_ids) GROUP BY d.run_id
          HAVING bool_or(d.state = 'open' AND NOT d.any_of)
              OR bool_or(d.any_of) AND NOT bool_or(d.any_of AND d.state = 'met')) held
    WHERE r.id = held.run_id AND r.state IN ('waiting', 'queued');
    PERFORM pg_notify('pgsched_leader', 'runs') WHERE FOUND;
END $$;

-- The same, but a run that has never started waits again for the runs that it waited for.
CREATE FUNCTION pgsched.retry(run_id bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unstarted boolean;
BEGIN
    SELECT r.attempt = 0 AND r.state IN ('dead', 'cancelled', 'missed', 'skipped')
        AND EXISTS (SELECT FROM pgsched.dependencies d WHERE d.run_id = r.id) INTO unstarted
    FROM pgsched.runs r WHERE r.id = run_id FOR UPDATE;
    IF unstarted THEN
        PERFORM pgsched.retry_now(run_id);
        PERFORM pgsched.wait_again(ARRAY[run_id]);
        RETURN (SELECT r.state FROM pgsched.runs r WHERE r.id = run_id);
    END IF;
    RETURN pgsched.retry_now(run_id);
END $$;

-- Revives every run of the graph that ended and did not succeed: those that wait for none of these start now, the others
-- wait again. What has succeeded is not repeated. Returns the ids and the new states.
CREATE FUNCTION pgsched.retry_tree(run_id bigint) RETURNS TABLE (id bigint, state text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    revived bigint[];
    one bigint;
BEGIN
    -- locked before any is changed, and in the order in which the leader locks them
    revived := ARRAY(SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT pgsched.run_graph(retry_tree.run_id)))
                     AND r.state IN ('dead', 'cancelled', 'missed', 'skipped') ORDER BY r.id FOR UPDATE);
    FOREACH one IN ARRAY revived LOOP
        PERFORM pgsched.retry_now(one);
    END LOOP;
    PERFORM pgsched.wait_again(revived);
    RETURN QUERY SELECT r.id, r.state FROM pgsched.runs r WHERE r.id = ANY (revived) ORDER BY r.id;
END $$;

-- Let a run that was just made carry a trace; one that has been attempted, or carries one, is left alone. Who
-- made a run may say so before anybody has begun it.
CREATE FUNCTION pgsched.carry_trace(run_id bigint, how text, trace jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pgsched.runs SET options = coalesce(options, '{}') || jsonb_build_object('trace', trace)
    WHERE id = run_id AND how IN ('created', 'replaced') AND phase < 3 /* open */ AND attempt = 0
        AND NOT coalesce(options, '{}') ? 'trace' AND jsonb_typeof(trace) = 'object'
        AND octet_length(trace::text) <= 1000 AND pgsched.may_change(owner)
$$;

-- Ends the unfinished runs of a job for one that somebody asks for: unstarted ones at once, running ones by asking, or by
-- taking the claim away. A claim that a handler holds by assert_claim is asked for as well: that may take for ever.
CREATE FUNCTION pgsched.end_open_runs(job_id bigint, terminate boolean, why text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    r pgsched.runs;
BEGIN
    FOR r IN SELECT * FROM pgsched.runs WHERE job_id = end_open_runs.job_id AND phase < 3 /* open */ AND origin <> 'backfill'
             ORDER BY id LOOP
        PERFORM pgsched.cancel(r.id, why);
        CONTINUE WHEN NOT terminate;
        SELECT * INTO r FROM pgsched.runs WHERE id = r.id AND state = 'running' FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, worker_id, worker, error)
        SELECT r.id, r.token, r.attempt, 'cancelled', r.started_at, r.worker_id,
            (SELECT name FROM pgsched.workers WHERE id = r.worker_id), r.cancel_reason
        ON CONFLICT (run_id, token) DO NOTHING;
        UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp(), token = NULL,
            reason = cancel_reason WHERE id = r.id;
    END LOOP;
END $$;

-- The state that a triggered run is born in under an overlap policy, as the ticker would decide for a slot
-- (pgsched/core/planning/overlap.py); and why, where it does not run. Backfills do not count, and what waits for limits
-- alone is not held by the policy. To be called with the job's row locked.
CREATE FUNCTION pgsched.triggered_state(j pgsched.jobs, overlap text, OUT state text, OUT reason text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    open_runs bigint;
    held bigint;
    newest bigint;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE r.state = 'waiting' AND r.ready_at IS NULL AND NOT pgsched.waits_in_turn(r.reason)), max(r.id)
        INTO open_runs, held, newest
    FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 /* open */ AND r.origin <> 'backfill';
    triggered_state.state := 'queued';
    IF open_runs = 0 THEN
        RETURN;
    ELSIF triggered_state.overlap IN ('replace', 'terminate') THEN
        PERFORM pgsched.end_open_runs(j.id, triggered_state.overlap = 'terminate', 'overlap: replaced by a triggered run');
        triggered_state.state := CASE triggered_state.overlap WHEN 'replace' THEN 'waiting' ELSE 'queued' END;
    ELSIF triggered_state.overlap = 'skip' THEN
        triggered_state.state := 'skipped';
        triggered_state.reason := format('overlap: run %s was not finished', newest);
    ELSIF held >= (CASE triggered_state.overlap WHEN 'buffer_one' THEN 1 ELSE j.max_buffer END) THEN
        triggered_state.state := 'skipped';
        triggered_state.reason := format('overlap: run %s was not finished and %s already waited', newest, held);
    ELSE
        triggered_state.state := 'waiting';
    END IF;
END $$;

-- Runs a job now, beside its schedule; returns the run's id. It starts whatever else runs, unless `overlap` names the
-- policy that it shall obey: then a run that is not to be is recorded as skipped.
CREATE FUNCTION pgsched.trigger(job text, args jsonb DEFAULT NULL, overlap text DEFAULT 'allow') RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    j pgsched.jobs;
    problem text := pgsched.not_one_of('overlap', trigger.overlap,
        ARRAY['allow', 'skip', 'buffer_one', 'buffer_all', 'replace', 'terminate']);
    born_state text := 'queued';
    why text;
    new_id bigint;
BEGIN
    IF problem IS NULL AND trigger.overlap <> 'allow' THEN
        -- a write, not only a lock: under REPEATABLE READ the second of two callers must fail, not count too few
        UPDATE pgsched.jobs SET run_count = run_count WHERE name = trigger.job RETURNING * INTO j;
    ELSE
        SELECT * INTO j FROM pgsched.jobs WHERE name = trigger.job FOR KEY SHARE;  -- against a delete, not the tick
    END IF;
    PERFORM pgsched.refuse_others(format('job "%s"', j.name), j.owner) WHERE j.id IS NOT NULL;
    problem := coalesce(problem, CASE WHEN trigger.args IS NOT NULL THEN pgsched.args_error(j.kind, trigger.args) END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    ELSIF j.id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'no_data_found', MESSAGE = format('job: there is no job named "%s"', trigger.job);
    ELSIF trigger.overlap <> 'allow' THEN
        SELECT s.state, s.reason INTO born_state, why FROM pgsched.triggered_state(j, trigger.overlap) s;
    END IF;
    LOOP
        INSERT INTO pgsched.runs (job_id, scheduled_at, state, reason, finished_at, queue, priority, kind, task, args,
            origin, owner, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter,
            options, tags, concurrency_key)
        VALUES (j.id, clock_timestamp(), born_state, why, CASE born_state WHEN 'skipped' THEN clock_timestamp() END,
            j.queue, j.priority, j.kind, j.task, coalesce(trigger.args, j.args), 'manual', j.owner, j.max_attempts,
            j.timeout, nullif(j.kill_after, '10 seconds'), nullif(j.backoff, 'exponential'),
            nullif(j.backoff_base, '5 seconds'), nullif(j.backoff_max, '1 hour'), nullif(j.backoff_jitter, 0.2),
            pgsched.job_options(j), j.tags,
            pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, coalesce(trigger.args, j.args)))
        ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
        RETURNING id INTO new_id;
        -- two people in the same microsecond: the second one tries again
        EXIT WHEN new_id IS NOT NULL;
    END LOOP;
    PERFORM pgsched.note('triggered', 'job', j.name, jsonb_build_object('run', new_id));
    RETURN new_id;
END $$;
