-- Pause jobs whose newest runs all ended dead (jobs.pause_after_failures), and open an incident for each, which ends when
-- the job is resumed. Runs that ended before the job was last resumed do not count, nor do backfills. A job in mode shadow
-- goes on deciding its slots. A job that another transaction has locked is left for the next call. So is one whose edit is
-- refused: it is returned with the error. Jobs are taken in random order, so that many of these hold up no other job.
-- The leader calls this.
CREATE FUNCTION pgsched.pause_failing(n integer) RETURNS TABLE (id bigint, job text, reason text, error text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    j record;
BEGIN
    PERFORM set_config('pgsched.watches', 'on', true);  -- for pgsched.audit_alerts: the pause itself is in the audit
    FOR j IN
        SELECT o.id, o.name, o.alert_to, f.run_id, format('%s of its runs in a row failed (pause_after_failures), the last,'
            ' run %s, with: %s', o.pause_after_failures, f.run_id, left(f.error, 1000)) AS why
        FROM pgsched.jobs o CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE e.state = 'dead') AS dead, (array_agg(e.id ORDER BY e.scheduled_at DESC))[1] AS run_id,
                (array_agg(coalesce(e.error, e.reason) ORDER BY e.scheduled_at DESC))[1] AS error
            FROM (
                SELECT s.* FROM (
                    SELECT r.id, r.state, r.scheduled_at, r.finished_at, r.error, r.reason, r.origin FROM pgsched.runs r
                    WHERE r.job_id = o.id ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT 2000) s
                WHERE s.state IN ('succeeded', 'dead') AND s.origin <> 'backfill'
                    AND s.finished_at > coalesce(o.resumed_at, '-infinity') LIMIT o.pause_after_failures) e) f
        WHERE o.pause_after_failures IS NOT NULL AND NOT o.paused AND o.mode = 'run' AND f.dead = o.pause_after_failures
        ORDER BY random() LIMIT n FOR NO KEY UPDATE OF o SKIP LOCKED
    LOOP
        pause_failing.id := j.id;
        pause_failing.job := j.name;
        pause_failing.reason := j.why;
        pause_failing.error := NULL;
        BEGIN
            UPDATE pgsched.jobs o SET paused = true, paused_by = 'pgsched', paused_reason = j.why WHERE o.id = j.id;
            INSERT INTO pgsched.alerts (job_id, job, kind, run_id, details, alert_to)
            SELECT j.id, j.name, 'paused', j.run_id, 'it has paused itself: ' || j.why, coalesce(j.alert_to, (
                SELECT d.alert_to FROM pgsched.alert_defaults d))
            ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING;
        EXCEPTION WHEN OTHERS THEN
            pause_failing.error := left(SQLERRM, 1000);
        END;
        RETURN NEXT;
    END LOOP;
END $$;
