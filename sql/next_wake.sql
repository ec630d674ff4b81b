-- next_wake: seconds until the leader has something to decide (never negative; null: nothing known).
-- params: none
-- returns: wait_s float8
-- locks: none
SELECT CASE WHEN at IS NOT NULL THEN greatest(0, extract(epoch FROM at - clock_timestamp()))::float8 END AS wait_s
FROM (SELECT least(
    (SELECT min(next_run_at) FROM pgsched.jobs WHERE NOT paused AND next_run_at IS NOT NULL),
    (SELECT min(available_at) FROM pgsched.runs WHERE phase = 1),
    (SELECT min(expires_at) FROM pgsched.runs WHERE phase < 3 AND state <> 'running' AND started_at IS NULL),
    (SELECT min(held_until) FROM pgsched.runs WHERE phase = 0)) AS at) next
