-- alert_test: an incident that is none, to see whether the sinks hear of it; or the end of one.
-- params: close boolean, details text
-- returns: id
-- locks: that row
WITH closed AS (
    UPDATE pgsched.alerts SET closed_at = clock_timestamp(), recovery = 'it was only a test'
    WHERE %(close)s AND job_id = 0 AND kind = 'test' AND closed_at IS NULL RETURNING id
), opened AS (
    INSERT INTO pgsched.alerts (job_id, kind, details) SELECT 0, 'test', %(details)s WHERE NOT %(close)s
    ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING RETURNING id
)
SELECT id FROM closed UNION ALL SELECT id FROM opened
UNION ALL SELECT id FROM pgsched.alerts WHERE NOT %(close)s AND job_id = 0 AND kind = 'test' AND closed_at IS NULL
LIMIT 1
