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
            options, tags, slot_zone, concurrency_key)
        VALUES (j.id, clock_timestamp(), born_state, why, CASE born_state WHEN 'skipped' THEN clock_timestamp() END,
            j.queue, j.priority, j.kind, j.task, coalesce(trigger.args, j.args), 'manual', j.owner, j.max_attempts,
            j.timeout, j.kill_after, j.backoff, j.backoff_base, j.backoff_max, j.backoff_jitter,
            pgsched.job_options(j), j.tags, nullif(j.timezone, 'UTC'),
            pgsched.run_key(j.id, j.concurrency_key, j.concurrency_limit, coalesce(trigger.args, j.args)))
        ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
        RETURNING id INTO new_id;
        -- two people in the same microsecond: the second one tries again
        EXIT WHEN new_id IS NOT NULL;
    END LOOP;
    PERFORM pgsched.note('triggered', 'job', j.name, jsonb_build_object('run', new_id));
    RETURN new_id;
END $$;
