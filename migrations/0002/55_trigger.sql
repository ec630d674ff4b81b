-- A run that somebody triggers belongs to a job that is there: a delete in progress is waited for, and one that comes
-- later finds the run and cancels it. Under a policy it fares as a slot would (pgsched/core/planning/overlap.py).

-- The state that a triggered run is born in under an overlap policy, as the ticker would decide for a slot; and why,
-- where it does not run. Backfills do not count, and what waits for
-- its turn is not held. To be called with the job's row locked.
CREATE OR REPLACE FUNCTION pgsched.triggered_state(j pgsched.jobs, overlap text, OUT state text, OUT reason text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    open_runs bigint;
    held bigint;
    newest bigint;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE r.state = 'waiting' AND NOT pgsched.waits_in_turn(r.reason)), max(r.id)
        INTO open_runs, held, newest
    FROM pgsched.runs r WHERE r.job_id = j.id AND r.phase < 3 AND r.origin <> 'backfill';
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
    IF problem IS NULL AND trigger.overlap <> 'allow' THEN
        -- a write, not only a lock: under REPEATABLE READ the second of two callers must fail, not count too few
        UPDATE pgsched.jobs SET run_count = run_count WHERE name = trigger.job RETURNING * INTO j;
    ELSE
        SELECT * INTO j FROM pgsched.jobs WHERE name = trigger.job FOR KEY SHARE;  -- against a delete, not the tick
    END IF;
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
            options, tags)
        VALUES (j.id, clock_timestamp(), born_state, why, CASE born_state WHEN 'skipped' THEN clock_timestamp() END,
            j.queue, j.priority, j.kind, j.task, coalesce(trigger.args, j.args), 'manual', j.owner, j.max_attempts,
            j.timeout, nullif(j.kill_after, '10 seconds'), nullif(j.backoff, 'exponential'),
            nullif(j.backoff_base, '5 seconds'), nullif(j.backoff_max, '1 hour'), nullif(j.backoff_jitter, 0.2),
            pgsched.job_options(j), j.tags)
        ON CONFLICT (job_id, scheduled_at) WHERE job_id IS NOT NULL DO NOTHING
        RETURNING id INTO new_id;
        -- two people in the same microsecond: the second one tries again
        EXIT WHEN new_id IS NOT NULL;
    END LOOP;
    RETURN new_id;
END $$;
