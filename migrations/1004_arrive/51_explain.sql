-- Why a slot has its row: who asked for it, or how late it was decided; an empty text for one that was decided in time.
CREATE OR REPLACE FUNCTION pgsched.row_origin(r pgsched.runs, slot timestamptz) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN r.origin = 'manual' THEN '. It was asked for by hand'
        WHEN r.origin <> 'schedule' THEN format('. Backfill %s asked for it', r.backfill_id)
        WHEN r.created_at - slot <= interval '5 seconds' OR r.state IN ('skipped', 'missed')
            -- rows for these reasons are always made later than their slots
            AND r.reason ~ '^(paused since|excluded |the job had ended: its (ends_at|max_runs))' THEN ''
        ELSE (SELECT format('. It was decided %s late', pgsched.elapsed(r.created_at - slot)) || coalesce(
                  CASE WHEN a.first_at - slot <= interval '5 seconds' THEN ', because' ELSE '; meanwhile' END || ' no process led ' || a.words, '')
              FROM pgsched.leader_absences(slot, r.created_at) a) END
$$;

-- What is known of a slot that has a row, its own or that of the stretch in which it lies.
CREATE OR REPLACE FUNCTION pgsched.explain_row(j pgsched.jobs, r pgsched.runs, slot timestamptz) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own pgsched.runs := r;
    one_row text := format('one row, that of slot %s, run %s', pgsched.utc(r.scheduled_at), r.id);
    told text;
BEGIN
    IF r.scheduled_at = slot THEN
        RETURN format('run %s: %s%s%s', r.id, pgsched.explain_run(r), pgsched.row_origin(r, slot),
            '. A calendar moved it there from ' || pgsched.utc(r.nominal_at));
    END IF;
    IF r.covers_state IS NULL THEN
        own.covers_from := NULL;
        told := pgsched.explain_run(own);
    ELSE  -- it was revived for its own slot: for the others it is what it was before
        own.state := r.covers_state;
        own.reason := r.covers_reason;
        own.origin := 'schedule';
        own.finished_at := r.created_at;
        told := CASE WHEN r.covers_state IN ('skipped', 'missed') THEN pgsched.explain_run(own)
            ELSE format('that run was for all of them, and %s%s', CASE r.covers_state WHEN 'succeeded' THEN 'succeeded'
                        WHEN 'cancelled' THEN 'was cancelled' ELSE 'failed' END,
                    CASE WHEN r.covers_state <> 'succeeded' THEN ' (' || nullif(r.covers_reason, '') || ')' END) END;
    END IF;
    told := CASE WHEN j.schedule IS NOT NULL AND slot < j.anchor_at
            THEN format('the schedule of today begins at %s; of the one before, %s have %s', pgsched.utc(j.anchor_at), pgsched.stretch(r), one_row)
            ELSE format('it lies in a stretch of %s, which has %s', pgsched.stretch(r), one_row) END
        || ': ' || told || pgsched.row_origin(own, slot);
    RETURN told || CASE WHEN r.covers_state IS NULL THEN ''
        ELSE format('. Later run %s was revived, for slot %s alone', r.id, pgsched.utc(r.scheduled_at)) END;
END $$;

-- What a run waits for that waits for other runs: "run 7 (nightly, running), the same slot of weekly".
CREATE OR REPLACE FUNCTION pgsched.waited_for(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(o.words, ', ' ORDER BY o.place) FILTER (WHERE o.place <= 3)
        || CASE WHEN max(o.place) > 3 THEN format(' and %s more', max(o.place) - 3) ELSE '' END
    FROM (
        SELECT w.words, row_number() OVER (ORDER BY w.rank, w.id) AS place FROM (
            SELECT 1 AS rank, p.id, format('run %s (%s)', p.id, concat_ws(', ', j.name, p.state)) AS words
            FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id LEFT JOIN pgsched.jobs j ON j.id = p.job_id
            WHERE r.available_at >= '8998-01-01 00:00Z' AND d.run_id = r.id AND d.state = 'open'
            UNION ALL
            SELECT 2, a.job_id, CASE r.options ->> 'after_match' WHEN 'latest' THEN 'the newest slot of '
                WHEN 'since_last' THEN 'a success of ' ELSE 'the same slot of ' END || coalesce(j.name, 'job ' || a.job_id)
            FROM pgsched.after_jobs_of(r.options) a(job_id) LEFT JOIN pgsched.jobs j ON j.id = a.job_id
            WHERE r.available_at = '8998-01-01 00:00Z'
                AND (r.options ? 'after_match'
                     OR NOT EXISTS (SELECT FROM pgsched.runs o WHERE o.job_id = a.job_id AND o.scheduled_at = r.scheduled_at))
            UNION ALL  -- the job's own open runs, where its policy holds this one
            SELECT 3, o.id, format('run %s (%s, slot %s)', o.id, o.state, pgsched.utc(o.scheduled_at))
            FROM (SELECT q.id, q.state, q.scheduled_at, q.origin FROM pgsched.runs q
                  WHERE q.job_id = r.job_id AND q.phase < 3 /* open */ AND r.available_at < '8998-01-01 00:00Z' LIMIT 1000) o
            WHERE o.id <> r.id AND o.origin <> 'backfill'
                AND (o.state <> 'waiting' OR (o.scheduled_at, o.id) < (r.scheduled_at, r.id))) w
    ) o
$$;
