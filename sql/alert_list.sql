-- alert_list: incidents, the newest first.
-- params: open boolean (only those that are open), job_id bigint (null: of all), n int
-- returns: (id, job_id, job, kind, opened_at, closed_at, details, run_id, recovery, now; told: json of [{event, sink,
--          attempts, delivered_at, error}])
-- locks: none
SELECT a.id, a.job_id, a.job, a.kind, a.opened_at, a.closed_at, a.details, a.run_id, a.recovery, clock_timestamp() AS now,
    (SELECT coalesce(json_agg(json_build_object('event', d.event, 'sink', d.sink, 'attempts', d.attempts,
                'delivered_at', d.delivered_at, 'error', d.error) ORDER BY d.sink, d.event DESC), '[]')
     FROM pgsched.alert_deliveries d WHERE d.alert_id = a.id) AS told
FROM pgsched.alerts a
WHERE (NOT %(open)s OR a.closed_at IS NULL) AND (%(job_id)s::bigint IS NULL OR a.job_id = %(job_id)s)
ORDER BY a.id DESC LIMIT %(n)s
