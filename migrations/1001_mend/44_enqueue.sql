-- What a run that has the key already becomes. Returns: existing (unchanged), replaced, rejected; null: it has ended.
-- Payload and time change only while it is not running; to claim it, a worker must hold its row.
CREATE OR REPLACE FUNCTION pgsched.meet_run(existing bigint, on_conflict text, task text, args jsonb, due timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r pgsched.runs;
    later boolean;
    held boolean;
    problem text;
BEGIN
    IF on_conflict = 'reject' THEN
        RETURN 'rejected';
    ELSIF on_conflict = 'return' THEN
        RETURN 'existing';
    END IF;
    problem := coalesce(pgsched.not_one_of('on_conflict', on_conflict, ARRAY['replace', 'keep_time']), CASE
        WHEN due IS NULL THEN 'at: must not be null'
        WHEN due >= '8998-01-01 00:00Z' THEN  -- the leader's markers
            format('at: %s is not an instant between 1970 and 8997', due)
        ELSE pgsched.bad_instant('at', due) END);
    IF problem IS NOT NULL THEN
        PERFORM pgsched.raise_bad_value(problem, 'runs');
    END IF;
    SELECT * INTO r FROM pgsched.runs WHERE id = existing FOR NO KEY UPDATE;
    PERFORM pgsched.refuse_others(format('run %s, which has the key,', r.id), r.owner) WHERE r.id IS NOT NULL;
    IF r.id IS NULL OR r.phase >= 3 /* ended */ THEN
        RETURN NULL;
    ELSIF r.task <> meet_run.task THEN
        PERFORM pgsched.raise_bad_value(format('unique_key: run %s has it, of task "%s": it cannot take the payload of'
            ' another', r.id, left(r.task, 100)), 'runs');
    ELSIF r.state = 'running' THEN
        RETURN 'existing';
    END IF;
    held := r.state = 'waiting' AND r.available_at >= '8998-01-01 00:00Z';
    later := on_conflict = 'replace' AND due > clock_timestamp()
        AND (r.state = 'queued' OR r.state = 'waiting' AND r.ready_at IS NOT NULL);
    UPDATE pgsched.runs SET args = meet_run.args,
        -- one that waits for other runs keeps its marker (43_dependencies.sql)
        available_at = CASE WHEN on_conflict = 'replace' AND NOT held THEN due ELSE available_at END,
        options = CASE WHEN on_conflict = 'replace' AND held
                       THEN coalesce(options, '{}') || jsonb_build_object('not_before', due) ELSE options END,
        -- the way back to queued is the leader's; ready_at: only limits hold it
        state = CASE WHEN later THEN 'scheduled' ELSE r.state END,
        ready_at = CASE WHEN NOT later THEN r.ready_at END
    WHERE id = r.id;
    IF r.owner <> pgsched.caller() THEN  -- as an operator, say, who may change anybody's
        PERFORM pgsched.note('changed', 'run', r.id::text, pgsched.audited_change(
            jsonb_build_object('args', r.args, 'available_at', r.available_at),
            (SELECT jsonb_build_object('args', n.args, 'available_at', n.available_at) FROM pgsched.runs n WHERE n.id = r.id)));
    END IF;
    IF on_conflict = 'replace' THEN
        PERFORM pgsched.tell_leader();
    END IF;
    RETURN 'replaced';
END $$;
