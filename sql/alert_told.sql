-- alert_told: what came of telling a sink.
-- params: alert_id bigint, event text, sink text, error text (null: it was told), again_s float8 (seconds until the next try)
-- returns: nothing
-- locks: that row
UPDATE pgsched.alert_deliveries SET error = %(error)s::text,
    delivered_at = CASE WHEN %(error)s::text IS NULL THEN clock_timestamp() END,
    next_at = clock_timestamp() + make_interval(secs => %(again_s)s)
WHERE alert_id = %(alert_id)s AND event = %(event)s AND sink = %(sink)s AND delivered_at IS NULL
