-- status_attention: runs that ended badly and are still kept. They lie far apart in the table, each on a page of its own:
-- at most the newest n of the last day are counted, and `older` of those before, of which missed ones count as well.
-- params: n int, older int
-- returns: one row: dead (all that are kept), dead_day, missed_day (rows; one can cover many slots),
--          missed_slots_day, sampled (there may be more than n of the last day), uncounted (more may be kept)
-- locks: none
WITH day AS MATERIALIZED (
    SELECT clock_timestamp() - interval '1 day' AS since
), lately AS MATERIALIZED (
    SELECT state, coalesce(covers_count, 1) AS slots FROM pgsched.runs
    WHERE phase = 4 AND finished_at > (SELECT since FROM day) ORDER BY finished_at DESC LIMIT %(n)s
), before AS MATERIALIZED (
    SELECT state FROM pgsched.runs
    WHERE phase = 4 AND finished_at <= (SELECT since FROM day) ORDER BY finished_at DESC LIMIT %(older)s
), today AS (
    SELECT count(*) FILTER (WHERE state = 'dead') AS dead, count(*) FILTER (WHERE state = 'missed') AS missed,
        coalesce(sum(slots) FILTER (WHERE state = 'missed'), 0)::bigint AS missed_slots, count(*) >= %(n)s AS sampled
    FROM lately
), older AS (
    SELECT count(*) FILTER (WHERE state = 'dead') AS dead, count(*) >= %(older)s AS sampled FROM before
)
SELECT t.dead + o.dead AS dead, t.dead AS dead_day, t.missed AS missed_day, t.missed_slots AS missed_slots_day, t.sampled,
    t.sampled OR o.sampled AS uncounted
FROM today t, older o
