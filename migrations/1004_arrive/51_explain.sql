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
