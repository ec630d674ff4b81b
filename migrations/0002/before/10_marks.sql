-- Most of what 26_marks.sql does, in batches: while the trigger is off, nobody else may write jobs.
DO $$
DECLARE
    last bigint := 0;
    upto bigint;
BEGIN
    LOOP
        SELECT max(b.id) INTO upto FROM (SELECT j.id FROM pgsched.jobs j WHERE j.id > last ORDER BY j.id LIMIT 2000) b;
        EXIT WHEN upto IS NULL;
        IF EXISTS (SELECT FROM pgsched.jobs j WHERE j.id > last AND j.id <= upto AND j.decided_until > clock_timestamp()
                   AND j.schedule IS NOT NULL) THEN
            ALTER TABLE pgsched.jobs DISABLE TRIGGER b_high_water_mark;
            UPDATE pgsched.jobs j SET decided_until = m.mark,
                next_run_at = CASE WHEN j.error IS NULL THEN clock_timestamp() END
            FROM pgsched.jobs o CROSS JOIN LATERAL (
                SELECT greatest(o.updated_at, (
                    SELECT coalesce(r.covers_until, r.scheduled_at) FROM pgsched.runs r
                    WHERE r.job_id = o.id AND r.origin = 'schedule' ORDER BY r.scheduled_at DESC LIMIT 1)) AS mark
            ) m
            WHERE o.id = j.id AND o.id > last AND o.id <= upto AND o.schedule IS NOT NULL
                AND o.decided_until > clock_timestamp() AND m.mark < o.decided_until;
            ALTER TABLE pgsched.jobs ENABLE TRIGGER b_high_water_mark;
            COMMIT;
        END IF;
        last := upto;
    END LOOP;
END $$;
