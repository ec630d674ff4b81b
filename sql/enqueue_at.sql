-- enqueue_at: what `enqueue` makes of a delay, an instant and a time-out, as text, for a COPY of many runs.
-- params: at timestamptz or delay interval (from now), timeout interval; null: not given
-- returns: (available_at text, null: now; timeout text or null)
-- locks: none
SELECT coalesce(%(at)s::timestamptz, clock_timestamp() + %(delay)s::interval)::text, %(timeout)s::interval::text
