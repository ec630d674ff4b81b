-- web_month: how many slots of a job fell on each of some days, by what became of them; the newest n rows are read, by
-- the index over slots. A row that stands for several slots counts as these, on the day of the newest of them.
-- params: job_id bigint, edges timestamptz[] (the beginnings of the days and the end of the last), n int
-- returns: (day: 1 is the first, kind: ran, late, skipped, missed, dead or open, slots, read: rows, first_at: the oldest)
-- locks: none
WITH newest AS MATERIALIZED (
    SELECT r.scheduled_at, r.state, r.covers_count,
        r.origin = 'schedule' AND r.attempt = 1
            AND r.started_at > r.scheduled_at + coalesce(j.jitter, '0') + coalesce(j.misfire_after, '60 seconds') AS late
    FROM pgsched.runs r LEFT JOIN pgsched.jobs j ON j.id = r.job_id
    WHERE r.job_id = %(job_id)s AND r.scheduled_at >= (%(edges)s::timestamptz[])[1]
      AND r.scheduled_at < (%(edges)s::timestamptz[])[cardinality(%(edges)s::timestamptz[])]
    ORDER BY r.job_id DESC, r.scheduled_at DESC LIMIT %(n)s
)
SELECT width_bucket(scheduled_at, %(edges)s::timestamptz[]) AS day,
    CASE WHEN state = 'succeeded' THEN CASE WHEN late THEN 'late' ELSE 'ran' END WHEN state = 'cancelled' THEN 'skipped'
         WHEN state IN ('skipped', 'missed', 'dead') THEN state ELSE 'open' END AS kind,
    sum(coalesce(covers_count, 1))::bigint AS slots, count(*) AS read, min(scheduled_at) AS first_at
FROM newest GROUP BY 1, 2
