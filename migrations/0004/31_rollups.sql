-- How many runs ended and how long they took, by minute and by hour: what charts show after the rows are gone.
--
-- Written by whoever holds the row of rollup_mark (the leader): each ending is counted once, in the transaction that moves
-- the mark behind it. Minutes do not tell jobs apart (job_id 0); hours do, and 0 there means no job.
-- The rows `of all` tell only outcomes apart (queue and task are empty): a chart of everything reads few of them.

CREATE TABLE pgsched.rollups (
    width      text NOT NULL CHECK (width IN ('minute', 'hour', 'minute of all', 'hour of all')),
    from_at    timestamptz NOT NULL,
    job_id     bigint NOT NULL,
    queue      text NOT NULL,
    task       text NOT NULL,       -- of Python and command runs; of the others the kind, in brackets
    state      text NOT NULL,
    runs       bigint NOT NULL,
    started    bigint NOT NULL,     -- of them, those that ran at all
    retried    bigint NOT NULL,     -- of those, in more than one attempt
    duration_s double precision NOT NULL,  -- sums, of the last attempt
    wait_s     double precision NOT NULL,  -- from being due to the start
    late_s     double precision NOT NULL,  -- from the slot to the start, of first attempts
    late       bigint NOT NULL,     -- how many late_s is of
    late_max_s double precision,
    -- how many took less than 1, 2, 4, ... ms (pgsched.bin_of): 26 bins, the last for all from 16,777 s on
    durations  bigint[] NOT NULL,
    waits      bigint[] NOT NULL,
    lates      bigint[] NOT NULL,
    last_at    timestamptz NOT NULL,
    PRIMARY KEY (width, from_at, job_id, queue, task, state)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX rollups_of_job ON pgsched.rollups (job_id, from_at) WHERE job_id <> 0;

-- Every run that ended at or before counted_until is counted, and none that ended later.
CREATE TABLE pgsched.rollup_mark (
    name          text PRIMARY KEY DEFAULT 'runs' CHECK (name = 'runs'),
    counted_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO pgsched.rollup_mark DEFAULT VALUES;

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
