-- alert_owed: note what these sinks are to be told: of every incident that is open, or has been closed within the last hour.
-- params: sinks text[]
-- returns: nothing
-- locks: none beyond the new rows
INSERT INTO pgsched.alert_deliveries (alert_id, event, sink)
SELECT a.id, e.event, s.sink FROM pgsched.alerts a
CROSS JOIN unnest(%(sinks)s::text[]) AS s(sink) CROSS JOIN (VALUES ('opened'), ('closed')) AS e(event)
WHERE (a.closed_at IS NULL OR a.closed_at > clock_timestamp() - interval '1 hour')
  AND (e.event = 'opened' OR a.closed_at IS NOT NULL)
ON CONFLICT DO NOTHING
