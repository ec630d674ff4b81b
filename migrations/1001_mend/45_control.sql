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
