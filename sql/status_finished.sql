-- status_finished: what the newest finished runs say: how many ended in the last minutes, and how many of the slots
-- of the last day started late. At most n runs are read: on a busy system the figures are of those, and
-- sampled_s says how far back they reach.
-- params: n int
-- returns: one row: done_1, done_5, done_15 (runs that were executed), late, read, sampled_s
-- locks: none
WITH newest AS MATERIALIZED (
    SELECT finished_at, started_at, scheduled_at, job_id, state, attempt, origin FROM pgsched.runs
    WHERE phase >= 3 AND finished_at > (SELECT clock_timestamp() - interval '1 day')
    ORDER BY finished_at DESC LIMIT %(n)s
)
SELECT count(*) FILTER (WHERE executed AND finished_at > clock_timestamp() - interval '1 minute') AS done_1,
    count(*) FILTER (WHERE executed AND finished_at > clock_timestamp() - interval '5 minutes') AS done_5,
    count(*) FILTER (WHERE executed AND finished_at > clock_timestamp() - interval '15 minutes') AS done_15,
    count(*) FILTER (WHERE late) AS late, count(*) AS read,
    extract(epoch FROM clock_timestamp() - min(finished_at))::float8 AS sampled_s
FROM (
    SELECT n.finished_at, n.started_at IS NOT NULL AND n.state IN ('succeeded', 'dead', 'cancelled') AS executed,
        -- a retried run's started_at is that of its last attempt, which says nothing about the slot
        n.origin = 'schedule' AND n.attempt = 1
            AND n.started_at > n.scheduled_at + j.jitter + j.misfire_after AS late
    FROM newest n LEFT JOIN pgsched.jobs j ON j.id = n.job_id
) f
