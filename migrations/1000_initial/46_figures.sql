-- How long ended runs are kept, how many ended and how long they took, and who is told of alerts.

-- How long an ended run is kept, by what its job, its queue and the settings for everything say.
CREATE FUNCTION pgsched.keep_of(state text, of_job jsonb, of_queue jsonb, of_all jsonb) RETURNS interval
LANGUAGE sql STABLE AS $$
    SELECT coalesce(of_job ->> state, of_job ->> 'any', of_queue ->> state, of_queue ->> 'any',
                    of_all ->> state, of_all ->> 'any', '7 days')::interval
$$;

-- Deletes up to n entries that the setting keeps no longer; returns how many.
CREATE FUNCTION pgsched.prune_audit(n integer) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH old AS (
        SELECT id FROM pgsched.audit
        WHERE at < clock_timestamp() - (SELECT keep_audit FROM pgsched.retention) ORDER BY at LIMIT n
    ), gone AS (
        DELETE FROM pgsched.audit a USING old WHERE a.id = old.id RETURNING a.id
    )
    SELECT count(*) FROM gone
$$;

-- The bin of a length of time in seconds.
CREATE FUNCTION pgsched.bin_of(seconds double precision) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT pg_catalog.width_bucket(seconds, '{0.001,0.002,0.004,0.008,0.016,0.032,0.064,0.128,0.256,0.512,1.024,2.048,4.096,8.192,16.384,32.768,65.536,131.072,262.144,524.288,1048.576,2097.152,4194.304,8388.608,16777.216}'::double precision[]) + 1
$$;

CREATE FUNCTION pgsched.add_to_bin(bins bigint[], bin integer, n numeric) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    bins[bin] := bins[bin] + n;
    RETURN bins;
END $$;

CREATE AGGREGATE pgsched.histogram(integer, numeric)
    (SFUNC = pgsched.add_to_bin, STYPE = bigint[], INITCOND = '{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}');

CREATE FUNCTION pgsched.add_bins(a bigint[], b bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT array_agg(coalesce(x, 0) + coalesce(y, 0) ORDER BY n) FROM unnest(a, b) WITH ORDINALITY u(x, y, n)
$$;

-- Who listens is told in the transaction that opens or closes the incident. Whoever may connect may listen: what a
-- handler said (details) is for those who may read the table.
CREATE FUNCTION pgsched.alerts_notify() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_notify('pgsched_alerts', jsonb_build_object('id', NEW.id,
        'event', CASE WHEN NEW.closed_at IS NULL THEN 'opened' ELSE 'closed' END, 'kind', NEW.kind, 'job', NEW.job,
        'run_id', NEW.run_id, 'opened_at', NEW.opened_at, 'closed_at', NEW.closed_at)::text);
    RETURN NULL;
END $$;
