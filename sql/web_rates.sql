-- web_rates: what the finished runs of each stretch of time say. At most n of a stretch are read, its newest, by the
-- index over their end; where there were more, `seen` is n and earliest_at says how far back they reach.
--          The newest stretch goes on: it ends now.
-- params: width_s float8 (of a stretch), count int (of stretches, up to now), n int
-- returns: one row per stretch, oldest first: from_at, until_at, seen, executed, dead, missed, retried, earliest_at;
--          wait_50, wait_95: seconds from being due to the start; late_50, late_95, late_max: from slot to start, of
--          first attempts
-- locks: none
WITH clock AS (
    SELECT to_timestamp(floor(extract(epoch FROM clock_timestamp()) / %(width_s)s) * %(width_s)s) AS until
)
SELECT b.from_at, b.until_at, s.* FROM (
    SELECT until - (k * %(width_s)s * interval '1 second') AS from_at,
        least(until - ((k - 1) * %(width_s)s * interval '1 second'), clock_timestamp()) AS until_at
    FROM clock, generate_series(0, %(count)s - 1) k
) b CROSS JOIN LATERAL (
    SELECT count(*) AS seen, count(*) FILTER (WHERE started) AS executed,
        count(*) FILTER (WHERE state = 'dead') AS dead, count(*) FILTER (WHERE state = 'missed') AS missed,
        count(*) FILTER (WHERE started AND attempt > 1) AS retried, min(finished_at) AS earliest_at,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_s) AS wait_50,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY wait_s) AS wait_95,
        percentile_cont(0.5) WITHIN GROUP (ORDER BY late_s) AS late_50,
        percentile_cont(0.95) WITHIN GROUP (ORDER BY late_s) AS late_95, max(late_s) AS late_max
    FROM (
        SELECT r.state, r.attempt, r.finished_at, r.started_at IS NOT NULL AS started,
            CASE WHEN r.started_at IS NOT NULL
                 THEN greatest(extract(epoch FROM r.started_at - r.available_at)::float8, 0) END AS wait_s,
            CASE WHEN r.origin = 'schedule' AND r.attempt = 1
                 THEN extract(epoch FROM r.started_at - r.scheduled_at)::float8 END AS late_s
        FROM pgsched.runs r
        WHERE r.phase >= 3 AND r.finished_at >= b.from_at AND r.finished_at < b.until_at
        ORDER BY r.finished_at DESC LIMIT %(n)s
    ) newest
) s ORDER BY b.from_at
