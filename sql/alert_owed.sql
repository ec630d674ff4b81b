-- alert_owed: note what these sinks are to be told: of every incident that is open, or was closed within the last hour; and
-- within a day of the end of what they were to be told. What nobody has taken for an hour is of a sink that no process
-- here has any more: it is looked at no more (next_at infinity) until one has it again.
-- params: sinks text[]
-- returns: nothing
-- locks: those rows, skipping those that others take
WITH parked AS MATERIALIZED (
    SELECT d.alert_id, d.event, d.sink, 'infinity'::timestamptz AS next_at
    FROM pgsched.alert_deliveries d JOIN pgsched.alerts a ON a.id = d.alert_id
    WHERE d.delivered_at IS NULL AND d.next_at <= clock_timestamp()
      AND (a.closed_at < clock_timestamp() - interval '1 day'
           OR d.sink <> ALL (%(sinks)s::text[]) AND d.next_at < clock_timestamp() - interval '1 hour')
    FOR UPDATE OF d SKIP LOCKED
), wanted AS MATERIALIZED (
    SELECT d.alert_id, d.event, d.sink, clock_timestamp() AS next_at
    FROM pgsched.alert_deliveries d JOIN pgsched.alerts a ON a.id = d.alert_id
    WHERE d.delivered_at IS NULL AND d.next_at = 'infinity' AND d.sink = ANY (%(sinks)s::text[])
      AND coalesce(a.closed_at > clock_timestamp() - interval '1 day', true)
    FOR UPDATE OF d SKIP LOCKED
), moved AS (
    UPDATE pgsched.alert_deliveries d SET next_at = m.next_at FROM (TABLE parked UNION ALL TABLE wanted) m
    WHERE (d.alert_id, d.event, d.sink) = (m.alert_id, m.event, m.sink)
)
INSERT INTO pgsched.alert_deliveries (alert_id, event, sink)
SELECT a.id, e.event, s.sink FROM pgsched.alerts a
CROSS JOIN unnest(%(sinks)s::text[]) AS s(sink) CROSS JOIN (VALUES ('opened'), ('closed')) AS e(event)
WHERE (a.closed_at IS NULL OR a.closed_at > clock_timestamp() - interval '1 hour'
       OR a.closed_at > clock_timestamp() - interval '1 day' AND EXISTS (
           SELECT FROM pgsched.alert_deliveries o WHERE o.alert_id = a.id AND o.sink = s.sink))
  AND (e.event = 'opened' OR a.closed_at IS NOT NULL)
ON CONFLICT DO NOTHING
