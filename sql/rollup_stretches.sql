-- rollup_stretches: what was counted, by stretches of time of one length. Where there are more than `most` minutes or
--          hours of which there is something to say, one of each `every` is read. Each is found by the primary key, so that
--          it costs what is read; which hours a job has an index alone says.
-- params: unit, width text, job_id bigint (0: of all), from_at timestamptz (the first stretch begins there), until_at
--         timestamptz, width_s float8 (of a stretch), most, every int, durations boolean (else: waits)
-- returns: (begins_at, every: of how many one was read, started, retried, dead, missed, late_max_s, durations or waits (the
--          other one: nulls), lates bigint[] (pgsched.bin_of)), one for each that has any
-- locks: none
WITH known AS (
    SELECT DISTINCT from_at AS at FROM pgsched.rollups
    WHERE job_id = %(job_id)s AND job_id <> 0 AND from_at >= %(from_at)s
    UNION ALL
    SELECT at FROM generate_series(%(from_at)s::timestamptz, %(until_at)s, ('1 ' || %(unit)s)::interval) at
    WHERE %(job_id)s = 0
), numbered AS (
    SELECT at, row_number() OVER (ORDER BY at) AS n, count(*) OVER () > %(most)s AS too_many FROM known
), picked AS MATERIALIZED (
    SELECT at, CASE WHEN too_many THEN %(every)s ELSE 1 END AS every FROM numbered
    WHERE NOT too_many OR n %% %(every)s = 0
)
SELECT date_bin(%(width_s)s * interval '1 second', r.from_at, %(from_at)s) AS begins_at, max(p.every) AS every,
    sum(r.started)::bigint AS started, sum(r.retried)::bigint AS retried,
    coalesce(sum(r.runs) FILTER (WHERE r.state = 'dead'), 0)::bigint AS dead,
    coalesce(sum(r.runs) FILTER (WHERE r.state = 'missed'), 0)::bigint AS missed, max(r.late_max_s) AS late_max_s,
    ARRAY[sum(r.durations[1]), sum(r.durations[2]), sum(r.durations[3]), sum(r.durations[4]), sum(r.durations[5]),
        sum(r.durations[6]), sum(r.durations[7]), sum(r.durations[8]), sum(r.durations[9]), sum(r.durations[10]),
        sum(r.durations[11]), sum(r.durations[12]), sum(r.durations[13]), sum(r.durations[14]), sum(r.durations[15]),
        sum(r.durations[16]), sum(r.durations[17]), sum(r.durations[18]), sum(r.durations[19]), sum(r.durations[20]),
        sum(r.durations[21]), sum(r.durations[22]), sum(r.durations[23]), sum(r.durations[24]), sum(r.durations[25]),
        sum(r.durations[26])]::bigint[] AS durations,
    ARRAY[sum(r.waits[1]), sum(r.waits[2]), sum(r.waits[3]), sum(r.waits[4]), sum(r.waits[5]), sum(r.waits[6]),
        sum(r.waits[7]), sum(r.waits[8]), sum(r.waits[9]), sum(r.waits[10]), sum(r.waits[11]), sum(r.waits[12]),
        sum(r.waits[13]), sum(r.waits[14]), sum(r.waits[15]), sum(r.waits[16]), sum(r.waits[17]), sum(r.waits[18]),
        sum(r.waits[19]), sum(r.waits[20]), sum(r.waits[21]), sum(r.waits[22]), sum(r.waits[23]), sum(r.waits[24]),
        sum(r.waits[25]), sum(r.waits[26])]::bigint[] AS waits,
    ARRAY[sum(r.lates[1]), sum(r.lates[2]), sum(r.lates[3]), sum(r.lates[4]), sum(r.lates[5]), sum(r.lates[6]),
        sum(r.lates[7]), sum(r.lates[8]), sum(r.lates[9]), sum(r.lates[10]), sum(r.lates[11]), sum(r.lates[12]),
        sum(r.lates[13]), sum(r.lates[14]), sum(r.lates[15]), sum(r.lates[16]), sum(r.lates[17]), sum(r.lates[18]),
        sum(r.lates[19]), sum(r.lates[20]), sum(r.lates[21]), sum(r.lates[22]), sum(r.lates[23]), sum(r.lates[24]),
        sum(r.lates[25]), sum(r.lates[26])]::bigint[] AS lates
FROM picked p
CROSS JOIN LATERAL (
    SELECT f.from_at, f.state, f.runs, f.started, f.retried, f.late_max_s,
        CASE WHEN f.started > 0 AND %(durations)s THEN f.durations END AS durations,
        CASE WHEN f.started > 0 AND NOT %(durations)s THEN f.waits END AS waits,
        CASE WHEN f.late > 0 THEN f.lates END AS lates
    FROM pgsched.rollups f WHERE f.width = %(width)s AND f.from_at = p.at AND f.job_id = %(job_id)s OFFSET 0
) r
GROUP BY 1
