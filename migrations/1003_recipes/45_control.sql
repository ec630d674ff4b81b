-- Revives a dead, cancelled, missed or skipped run with at least one more attempt. Returns the new state, or the
-- unchanged one when it is not ended (or succeeded); NULL when there is no such run. The row of a stretch that did not run
-- is revived for its own slot. It starts whatever became of runs that it waited for; runs that still wait for it are let
-- go when it succeeds. Somebody asked for it: it is bound by neither its start deadline nor retry_within, and has a name
-- of its own outside of the database. A dead item goes back into its queue, and is a run no more.
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
    IF r.kind = 'item' THEN
        RETURN pgsched.item_revive(r);
    END IF;
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
