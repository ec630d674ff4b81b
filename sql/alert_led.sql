-- alert_led: there is a leader again. Incidents of long ago go: what was told, when, and what became of it.
-- params: none
-- returns: nothing
-- locks: those incidents
WITH led AS (
    UPDATE pgsched.alerts SET closed_at = clock_timestamp(), recovery = 'there is a leader again'
    WHERE job_id = 0 AND kind = 'no_leader' AND closed_at IS NULL
)
DELETE FROM pgsched.alerts WHERE closed_at < clock_timestamp() - interval '400 days'
