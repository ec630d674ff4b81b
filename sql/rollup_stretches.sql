-- rollup_stretches: the counts of stretches of time of one length, from the minutes or hours that were counted.
-- params: width text, job_id bigint (0: of all), from_at timestamptz (the first begins there), width_s float8 (of a
--         stretch)
-- returns: (begins_at, started, retried, dead, missed, late_max_s, duration_s, bins: how many rows
--          rollup_bins would read), one for each that has any
-- locks: none
SELECT date_bin(%(width_s)s * interval '1 second', from_at, %(from_at)s) AS begins_at, sum(started)::bigint AS started,
    sum(retried)::bigint AS retried, sum(duration_s) AS duration_s, count(*) FILTER (WHERE started > 0) AS bins,
    coalesce(sum(runs) FILTER (WHERE state = 'dead'), 0)::bigint AS dead,
    coalesce(sum(runs) FILTER (WHERE state = 'missed'), 0)::bigint AS missed, max(late_max_s) AS late_max_s
FROM pgsched.rollups WHERE width = %(width)s AND job_id = %(job_id)s AND from_at >= %(from_at)s
GROUP BY 1
