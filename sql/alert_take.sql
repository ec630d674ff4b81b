-- alert_take: the next thing that these sinks are to be told, taken for as long as telling may last. Who opened is told
-- before who closed. What cannot be told is given up a day after the incident is over; it keeps its error.
-- params: sinks text[], lease_s float8
-- returns: at most one row (alert_id, event, sink, attempts, job_id, job, kind, details, run_id, recovery, opened_at, closed_at)
-- locks: that delivery, skipping those that others take
WITH due AS MATERIALIZED (
    SELECT d.alert_id, d.event, d.sink FROM pgsched.alert_deliveries d JOIN pgsched.alerts a ON a.id = d.alert_id
    WHERE d.delivered_at IS NULL AND d.next_at <= clock_timestamp() AND d.sink = ANY (%(sinks)s)
      AND coalesce(a.closed_at > clock_timestamp() - interval '1 day', true)
      AND NOT EXISTS (SELECT FROM pgsched.alert_deliveries o WHERE d.event = 'closed' AND o.alert_id = d.alert_id
                      AND o.event = 'opened' AND o.sink = d.sink AND o.delivered_at IS NULL)
    ORDER BY d.next_at, d.alert_id LIMIT 1 FOR UPDATE OF d SKIP LOCKED
), taken AS (
    UPDATE pgsched.alert_deliveries d SET attempts = d.attempts + 1,
        next_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM due WHERE (d.alert_id, d.event, d.sink) = (due.alert_id, due.event, due.sink)
    RETURNING d.alert_id, d.event, d.sink, d.attempts
)
SELECT t.alert_id, t.event, t.sink, t.attempts, a.job_id, a.job, a.kind, a.details, a.run_id, a.recovery, a.opened_at,
    CASE t.event WHEN 'closed' THEN a.closed_at END AS closed_at
FROM taken t JOIN pgsched.alerts a ON a.id = t.alert_id
