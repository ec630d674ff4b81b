-- expire: queued and held runs whose start deadline passed end as missed.
-- params: n int
-- returns: id
-- locks: FOR UPDATE on those runs, skipping locked ones
WITH late AS MATERIALIZED (
    SELECT id FROM pgsched.runs
    WHERE phase < 3 AND job_id IS NOT NULL AND state <> 'running' AND expires_at <= clock_timestamp()
    LIMIT %(n)s FOR UPDATE SKIP LOCKED
)
UPDATE pgsched.runs r SET state = 'missed', finished_at = clock_timestamp(),
    reason = format('start_deadline passed: not started by %%s', r.expires_at)
FROM late WHERE r.id = late.id
RETURNING r.id
