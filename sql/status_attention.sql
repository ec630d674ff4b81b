-- status_attention: runs that ended badly and are still kept; at most the newest n are counted.
-- params: n int
-- returns: one row: dead (all that are kept), dead_day, missed_day (rows; one can cover many slots),
--          missed_slots_day, sampled (there may be more than n)
-- locks: none
SELECT count(*) FILTER (WHERE state = 'dead') AS dead, count(*) FILTER (WHERE state = 'dead' AND today) AS dead_day,
    count(*) FILTER (WHERE state = 'missed' AND today) AS missed_day,
    coalesce(sum(coalesce(covers_count, 1)) FILTER (WHERE state = 'missed' AND today), 0)::bigint AS missed_slots_day,
    count(*) >= %(n)s AS sampled
FROM (SELECT state, covers_count, finished_at > clock_timestamp() - interval '1 day' AS today
      FROM pgsched.runs WHERE phase = 4 ORDER BY finished_at DESC LIMIT %(n)s) r
