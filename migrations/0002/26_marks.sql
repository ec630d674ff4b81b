-- 0001 let the mark of a job that starts later stand right before its start, where nobody had decided anything, and kept
-- it there when the start was moved. Such a mark goes back to the last edit, or to the newest slot that has a row; what a
-- clock that stepped back left ahead of now has such a row.
ALTER TABLE pgsched.jobs DISABLE TRIGGER b_high_water_mark;
UPDATE pgsched.jobs j SET decided_until = m.mark, next_run_at = CASE WHEN j.error IS NULL THEN clock_timestamp() END
FROM pgsched.jobs o CROSS JOIN LATERAL (
    SELECT greatest(o.updated_at, (
        SELECT coalesce(r.covers_until, r.scheduled_at) FROM pgsched.runs r
        WHERE r.job_id = o.id AND r.origin = 'schedule' ORDER BY r.scheduled_at DESC LIMIT 1)) AS mark
) m
WHERE o.id = j.id AND o.schedule IS NOT NULL AND o.decided_until > clock_timestamp() AND m.mark < o.decided_until;
ALTER TABLE pgsched.jobs ENABLE TRIGGER b_high_water_mark;
