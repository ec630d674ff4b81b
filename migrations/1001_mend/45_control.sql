-- What is asked of another's run, job or backfill is refused before that is locked, and once more with the lock: who asked
-- again and again would keep it from workers and the leader.

-- Cancels a run: at once if nobody runs it, else by asking its worker. Returns what happened:
-- cancelled, requested, or the terminal state it already had; NULL when there is no such run.
CREATE OR REPLACE FUNCTION pgsched.cancel(run_id bigint, why text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    author text := format('cancelled by %s%s', session_user, coalesce(': ' || why, ''));
BEGIN
    IF length(why) > 10000 THEN  -- it becomes the run's reason, beside its error (runs_texts_size)
        PERFORM pgsched.raise_bad_value(pgsched.bad_length('why', why, 10000), 'runs');
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = run_id;
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
        PERFORM pgsched.notify('pgsched_cancel', '');
        RETURN 'requested';
    END IF;
    UPDATE pgsched.runs SET state = 'cancelled', finished_at = clock_timestamp(), reason = author WHERE id = run_id;
    PERFORM pgsched.tell_leader();
    RETURN 'cancelled';
END $$;

-- Revives a dead, cancelled, missed or skipped run with at least one more attempt. Returns the new state, or the
-- unchanged one when it is not ended (or succeeded); NULL when there is no such run. The row of a stretch that did not run
-- is revived for its own slot. It starts whatever became of runs that it waited for; runs that still wait for it are let
-- go when it succeeds. Somebody asked for it: it is bound by neither its start deadline nor retry_within, and has a name
-- of its own outside of the database.
CREATE OR REPLACE FUNCTION pgsched.retry_now(run_id bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    apart boolean;  -- a run that went wrong once for a whole stretch is tried again for all of it
BEGIN
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = run_id;
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
        reruns = coalesce(reruns, 0) + 1, crashes = 0, max_attempts = least(1000, greatest(max_attempts, attempt + 1)), cancel_requested_at = NULL,
        cancel_reason = NULL, reason = NULL, expires_at = NULL, held_until = NULL,
        has_children = (SELECT true FROM pgsched.dependencies d WHERE d.parent_id = r.id AND d.state = 'open' LIMIT 1),
        covers_state = CASE WHEN apart THEN state ELSE covers_state END,
        covers_reason = CASE WHEN apart THEN r.reason ELSE covers_reason END
    WHERE id = run_id;
    IF EXISTS (SELECT FROM pgsched.dependencies d WHERE d.run_id = r.id AND d.state <> 'met') THEN  -- a right of its own
        UPDATE pgsched.dependencies d SET state = 'met' WHERE d.run_id = r.id AND d.state <> 'met';
    END IF;
    PERFORM CASE r.state WHEN 'queued' THEN pgsched.notify('pgsched_runs', pgsched.queue_mark(r.queue))
        ELSE pgsched.tell_leader() END;
    RETURN r.state;
END $$;

-- Revived runs wait again for what they waited for: for one that has not succeeded, too, until somebody revives that.
-- What was pruned meanwhile holds nothing back.
CREATE OR REPLACE FUNCTION pgsched.wait_again(run_ids bigint[]) RETURNS void
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
    PERFORM pgsched.tell_leader() WHERE FOUND;
END $$;

-- The same, but a run that has never started waits again for the runs that it waited for.
CREATE OR REPLACE FUNCTION pgsched.retry(run_id bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    unstarted boolean;
BEGIN
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = run_id;
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
CREATE OR REPLACE FUNCTION pgsched.retry_tree(run_id bigint) RETURNS TABLE (id bigint, state text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    revived bigint[];
    one bigint;
BEGIN
    revived := ARRAY(SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (ARRAY(SELECT pgsched.run_graph(retry_tree.run_id)))
                     AND r.state IN ('dead', 'cancelled', 'missed', 'skipped'));
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = ANY (revived);
    -- locked before any is changed, and in the order in which the leader locks them
    revived := ARRAY(SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (revived)
                     AND r.state IN ('dead', 'cancelled', 'missed', 'skipped') ORDER BY r.id FOR UPDATE);
    FOREACH one IN ARRAY revived LOOP
        PERFORM pgsched.retry_now(one);
    END LOOP;
    PERFORM pgsched.wait_again(revived);
    RETURN QUERY SELECT r.id, r.state FROM pgsched.runs r WHERE r.id = ANY (revived) ORDER BY r.id;
END $$;

-- Runs a job now, beside its schedule; returns the run's id. It starts whatever else runs, unless `overlap` names the
-- policy that it shall obey: then a run that is not to be is recorded as skipped.
CREATE OR REPLACE FUNCTION pgsched.trigger(job text, args jsonb DEFAULT NULL, overlap text DEFAULT 'allow') RETURNS bigint
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
    PERFORM pgsched.refuse_others(format('job "%s"', o.name), o.owner) FROM pgsched.jobs o WHERE o.name = trigger.job;
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
