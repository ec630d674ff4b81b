-- alert_led: there is a leader again. Incidents of long ago go: what was told, when, and what became of it.
-- params: none
-- returns: nothing
-- locks: those incidents, skipping locked ones
WITH led AS (
    UPDATE pgsched.alerts SET closed_at = clock_timestamp(), recovery = 'there is a leader again'
    WHERE id = ANY (ARRAY(SELECT id FROM pgsched.alerts WHERE job_id = 0 AND kind = 'no_leader' AND closed_at IS NULL
                          FOR UPDATE SKIP LOCKED))
)
DELETE FROM pgsched.alerts
WHERE id = ANY (ARRAY(SELECT id FROM pgsched.alerts WHERE closed_at < (SELECT clock_timestamp() - interval '400 days')
                      ORDER BY closed_at LIMIT 1000 FOR UPDATE SKIP LOCKED))
