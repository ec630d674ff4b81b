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
