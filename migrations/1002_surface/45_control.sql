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
        PERFORM pgsched.refuse_unknown_job(trigger.job);
    ELSIF trigger.overlap <> 'allow' THEN
        SELECT s.state, s.reason INTO born_state, why FROM pgsched.triggered_state(j, trigger.overlap) s;
    END IF;
    LOOP
        INSERT INTO pgsched.runs (job_id, scheduled_at, state, reason, finished_at, queue, priority, kind, task, args,
            origin, owner, max_attempts, timeout, kill_after, backoff, backoff_base, backoff_max, backoff_jitter,
            options, tags, concurrency_key)
        VALUES (j.id, clock_timestamp(), born_state, why, CASE born_state WHEN 'skipped' THEN clock_timestamp() END,
            j.queue, j.priority, j.kind, j.task, coalesce(trigger.args, j.args), 'manual', j.owner, j.max_attempts,
            j.timeout, j.kill_after, j.backoff, j.backoff_base, j.backoff_max, j.backoff_jitter,
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

-- Changes a run that has not started: its priority, when it is due, its queue. What is null stays; not all may be null.
-- Returns the run's state after that, or null when there is no such run; one that runs or has ended is refused. A run that
-- gets another queue, or is no longer due, goes through admission again. One that waits for other runs keeps its place: `at` holds after them.
-- The time until it expires moves with `at`.
-- With the rights of the tables' owner no row policy judges the new queue and priority. So whoever is bound by a policy
-- that an administrator made for new runs may not change them.
CREATE FUNCTION pgsched.update_run(run_id bigint, priority integer DEFAULT NULL, at timestamptz DEFAULT NULL,
    queue text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    problem text := coalesce(
        CASE WHEN num_nonnulls(priority, at, queue) = 0 THEN 'priority: nothing to change: give priority, at or queue' END,
        CASE WHEN priority NOT BETWEEN 0 AND 9 THEN pgsched.out_of_range('priority', priority, 0, 9) END,
        CASE WHEN at >= '8998-01-01 00:00Z' THEN format('at: %s is not an instant between 1970 and 8997', at)
             WHEN at IS NOT NULL THEN pgsched.bad_instant('at', at) END);
    moved boolean;
    held boolean;
    bound_by name;
    changed pgsched.runs;
BEGIN
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', o.id), o.owner) FROM pgsched.runs o WHERE o.id = run_id;
    SELECT * INTO r FROM pgsched.runs WHERE id = run_id FOR NO KEY UPDATE;
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM pgsched.refuse_others(format('run %s', r.id), r.owner);
    held := r.state = 'waiting' AND r.ready_at IS NULL;
    IF r.phase >= 3 /* ended */ OR r.state = 'running' THEN
        PERFORM pgsched.raise_bad_value(format('state: run %s %s: only a run that has not started can be changed', r.id,
            CASE r.state WHEN 'running' THEN 'is running' ELSE 'has ended (' || r.state || ')' END), 'runs');
    ELSIF held AND at IS NOT NULL AND r.available_at < '8998-01-01 00:00Z' THEN
        PERFORM pgsched.raise_bad_value(format('at: run %s waits for another run of its job, which decides when it starts',
            r.id), 'runs');
    END IF;
    changed := r;
    IF at IS NOT NULL AND r.started_at IS NULL AND r.expires_at IS NOT NULL THEN
        changed.expires_at := least(r.expires_at + (greatest(at, clock_timestamp()) - greatest(r.created_at, CASE WHEN held
            THEN pgsched.not_before_of(r.options) ELSE r.available_at END)), '9000-01-01 00:00Z');
    END IF;
    changed.priority := coalesce(update_run.priority::smallint, r.priority);
    changed.queue := coalesce(update_run.queue, r.queue);
    moved := changed.queue <> r.queue;
    IF moved OR changed.priority <> r.priority THEN
        bound_by := pgsched.bounding_policy();
        IF bound_by IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('permission denied: the policy "%s"'
                ' bounds the runs of role "%s": cancel run %s and enqueue it again instead of changing its queue or'
                ' priority', bound_by, pgsched.caller(), r.id);
        END IF;
    END IF;
    IF held THEN
        IF at IS NOT NULL THEN
            changed.options := coalesce(r.options, '{}') || jsonb_build_object('not_before', at);
        END IF;
    ELSE
        changed.available_at := coalesce(at, r.available_at);
        IF r.state <> 'scheduled' AND changed.available_at > clock_timestamp() THEN
            changed.state := 'scheduled';  -- the way back to queued is the leader's
            changed.ready_at := NULL;
        ELSIF moved AND r.state <> 'scheduled' THEN
            changed.state := pgsched.entry_state(changed.queue, r.concurrency_key);
            changed.ready_at := CASE changed.state WHEN 'waiting' THEN coalesce(r.ready_at, clock_timestamp()) END;
        END IF;
    END IF;
    UPDATE pgsched.runs SET priority = changed.priority, queue = changed.queue, available_at = changed.available_at,
        state = changed.state, ready_at = changed.ready_at, options = changed.options, expires_at = changed.expires_at
    WHERE id = r.id;
    PERFORM pgsched.note('changed', 'run', r.id::text, pgsched.audited_change(
        jsonb_build_object('priority', r.priority, 'queue', r.queue, 'available_at', r.available_at, 'options', r.options,
                           'expires_at', r.expires_at),
        jsonb_build_object('priority', changed.priority, 'queue', changed.queue, 'available_at', changed.available_at,
                           'options', changed.options, 'expires_at', changed.expires_at)));
    PERFORM CASE changed.state WHEN 'queued' THEN pgsched.notify('pgsched_runs', pgsched.queue_mark(changed.queue))
        ELSE pgsched.tell_leader() END;
    RETURN changed.state;
END $$;
COMMENT ON FUNCTION pgsched.update_run IS 'Changes priority, time or queue of a run that has not started. Returns its state; NULL: there is no such run.';

-- Notes that somebody waits for the end of these runs: whoever ends one of them then notifies pgsched_ended. Returns how
-- many of them could not be noted now, because another session has locked them: ask again. Runs of other owners are left
-- alone, and so are runs that have ended. Call it in a transaction of its own: it locks rows that a settlement needs.
CREATE FUNCTION pgsched.await_runs(run_ids bigint[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    mine bigint[];
    noted bigint;
BEGIN
    IF cardinality(run_ids) > 10000 THEN
        PERFORM pgsched.raise_bad_value(format('run_ids: %s runs, at most 10000 are allowed', cardinality(run_ids)), 'runs');
    END IF;
    mine := ARRAY(
        SELECT r.id FROM pgsched.runs r
        WHERE r.id = ANY (run_ids) AND r.phase < 3 /* open */ AND r.awaited IS NOT TRUE
          AND (r.owner = pgsched.caller() OR r.owner IS NULL AND (SELECT pgsched.may_change(NULL)) OR r.owner IN (
              SELECT o.owner FROM (SELECT DISTINCT d.owner FROM pgsched.runs d WHERE d.id = ANY (run_ids)) o
              WHERE pgsched.may_change(o.owner))));
    IF cardinality(mine) = 0 THEN
        RETURN 0;
    END IF;
    WITH free AS MATERIALIZED (
        SELECT r.id FROM pgsched.runs r WHERE r.id = ANY (mine) AND r.phase < 3 /* open */ FOR NO KEY UPDATE SKIP LOCKED
    ), marked AS (
        UPDATE pgsched.runs r SET awaited = true FROM free WHERE r.id = free.id RETURNING r.queue, r.state
    )
    -- a claim that came meanwhile has passed over these rows: it is told to look again
    SELECT count(pgsched.notify('pgsched_runs', pgsched.queue_mark(q.queue))) INTO noted
    FROM (SELECT DISTINCT m.queue FROM marked m WHERE m.state = 'queued') q;
    RETURN (SELECT count(*) FROM pgsched.runs r
            WHERE r.id = ANY (mine) AND r.phase < 3 /* open */ AND r.awaited IS NOT TRUE);
END $$;

-- One notification for each transaction that ends awaited runs, without their ids: who waits looks. Settlements do this
-- themselves and end the mark (sql/settlements.sql), because a trigger costs a run more than its settlement.
CREATE FUNCTION pgsched.runs_awaited_ended() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pgsched.notify('pgsched_ended', '');
    RETURN NULL;
END $$;

CREATE TRIGGER e_awaited AFTER UPDATE OF phase ON pgsched.runs FOR EACH ROW
    WHEN (NEW.awaited AND NEW.phase >= 3 /* ended */) EXECUTE FUNCTION pgsched.runs_awaited_ended();
