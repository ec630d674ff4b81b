-- enqueue_at: what `enqueue` makes of a delay, an instant, a time-out and tags, as text, for a COPY of many runs.
-- params: at timestamptz or delay interval (from now), timeout interval, tags text[]; null: not given
-- returns: (available_at text, null: now; timeout text or null; tags text or null; boolean: row security forbids COPY)
-- locks: none
SELECT coalesce(%(at)s::timestamptz, clock_timestamp() + %(delay)s::interval)::text, %(timeout)s::interval::text,
    %(tags)s::text[]::text, row_security_active('pgsched.runs')
