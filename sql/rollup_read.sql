-- rollup_read: the figures of each stretch of time, from the minutes or hours that were counted. The newest stretch goes
-- on; what is not counted yet is not in it.
-- params: width text (minute or hour), width_s float8 (of a stretch, so many whole minutes or hours), count int (of
--         stretches, up to now), job_id bigint (null: all)
-- returns: one row per stretch, oldest first: from_at, until_at, executed, dead, missed, retried, duration_s,
--          late_max; durations, waits, lates bigint[] (pgsched.bin_of; null: nothing ended)
-- locks: none
WITH clock AS (
    SELECT to_timestamp(floor(extract(epoch FROM clock_timestamp()) / %(width_s)s) * %(width_s)s) AS until
)
SELECT b.from_at, b.until_at, s.* FROM (
    SELECT until - (k * %(width_s)s * interval '1 second') AS from_at,
        least(until - ((k - 1) * %(width_s)s * interval '1 second'), clock_timestamp()) AS until_at
    FROM clock, generate_series(0, %(count)s - 1) k
) b CROSS JOIN LATERAL (
    SELECT coalesce(sum(r.started), 0)::float8 AS executed,
        coalesce(sum(r.runs) FILTER (WHERE r.state = 'dead'), 0)::float8 AS dead,
        coalesce(sum(r.runs) FILTER (WHERE r.state = 'missed'), 0)::float8 AS missed,
        coalesce(sum(r.retried), 0)::float8 AS retried, coalesce(sum(r.duration_s), 0) AS duration_s,
        max(r.late_max_s) AS late_max, pgsched.sum_bins(r.durations) AS durations, pgsched.sum_bins(r.waits) AS waits,
        pgsched.sum_bins(r.lates) AS lates
    FROM pgsched.rollups r
    WHERE r.width = %(width)s AND r.from_at >= b.from_at AND r.from_at < b.until_at
      AND (%(job_id)s::bigint IS NULL OR r.job_id = %(job_id)s)
) s ORDER BY b.from_at
