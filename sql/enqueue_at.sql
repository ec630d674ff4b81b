-- enqueue_at: what `enqueue` makes of a delay, an instant, a time-out and tags, as text, for a COPY of many runs.
-- params: at timestamptz or delay interval (from now), timeout interval, tags text[], concurrency_key text; null: not
--         given
-- returns: (available_at text, null: now; timeout text or null; tags text or null; boolean: row security forbids COPY;
--         boolean: enqueue_plain may say that the runs have been checked)
-- locks: none
SELECT coalesce(%(at)s::timestamptz, clock_timestamp() + %(delay)s::interval)::text, %(timeout)s::interval::text,
    %(tags)s::text[]::text, row_security_active('pgsched.runs'), has_table_privilege('pgsched.runs', 'INSERT')
        AND num_nonnulls(%(at)s::timestamptz, %(delay)s::interval, %(concurrency_key)s::text) = 0
