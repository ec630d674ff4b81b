-- The trace that a run belongs to is carried in its options, as {"trace": {"traceparent": ..., "tracestate": ...}}: the
-- W3C's Trace Context. Runs that belong to none have nothing there.

-- Let a run that was just made carry a trace; one that has been attempted, or carries one, is left alone. Who
-- made a run may say so before anybody has begun it.
CREATE FUNCTION pgsched.carry_trace(run_id bigint, how text, trace jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pgsched.runs SET options = coalesce(options, '{}') || jsonb_build_object('trace', trace)
    WHERE id = run_id AND how IN ('created', 'replaced') AND phase < 3 AND attempt = 0
        AND NOT coalesce(options, '{}') ? 'trace' AND jsonb_typeof(trace) = 'object'
        AND octet_length(trace::text) <= 1000 AND pgsched.may_change(owner)
$$;
