-- rollup_bins: how long things took, in stretches of time of one length: the bins (pgsched.bin_of) of every n-th minute or
-- hour, each found by the primary key, so that a year costs no more than a month.
-- params: width text, step_s float8 (its seconds, times n), job_id bigint (0: of all), from_at, until_at timestamptz, width_s
--         float8 (of a stretch)
-- returns: (begins_at, durations, waits, lates bigint[]), one for each that has any
-- locks: none
SELECT date_bin(%(width_s)s * interval '1 second', r.from_at, %(from_at)s) AS begins_at,
    ARRAY[sum(durations[1]), sum(durations[2]), sum(durations[3]), sum(durations[4]), sum(durations[5]),
        sum(durations[6]), sum(durations[7]), sum(durations[8]), sum(durations[9]), sum(durations[10]),
        sum(durations[11]), sum(durations[12]), sum(durations[13]), sum(durations[14]), sum(durations[15]),
        sum(durations[16]), sum(durations[17]), sum(durations[18]), sum(durations[19]), sum(durations[20]),
        sum(durations[21]), sum(durations[22]), sum(durations[23]), sum(durations[24]), sum(durations[25]),
        sum(durations[26])]::bigint[] AS durations,
    ARRAY[sum(waits[1]), sum(waits[2]), sum(waits[3]), sum(waits[4]), sum(waits[5]), sum(waits[6]), sum(waits[7]),
        sum(waits[8]), sum(waits[9]), sum(waits[10]), sum(waits[11]), sum(waits[12]), sum(waits[13]), sum(waits[14]),
        sum(waits[15]), sum(waits[16]), sum(waits[17]), sum(waits[18]), sum(waits[19]), sum(waits[20]),
        sum(waits[21]), sum(waits[22]), sum(waits[23]), sum(waits[24]), sum(waits[25]),
        sum(waits[26])]::bigint[] AS waits,
    ARRAY[sum(lates[1]), sum(lates[2]), sum(lates[3]), sum(lates[4]), sum(lates[5]), sum(lates[6]), sum(lates[7]),
        sum(lates[8]), sum(lates[9]), sum(lates[10]), sum(lates[11]), sum(lates[12]), sum(lates[13]), sum(lates[14]),
        sum(lates[15]), sum(lates[16]), sum(lates[17]), sum(lates[18]), sum(lates[19]), sum(lates[20]),
        sum(lates[21]), sum(lates[22]), sum(lates[23]), sum(lates[24]), sum(lates[25]),
        sum(lates[26])]::bigint[] AS lates
FROM generate_series(%(from_at)s::timestamptz, %(until_at)s, %(step_s)s::float8 * interval '1 second') g(at)
CROSS JOIN LATERAL (
    SELECT f.from_at, f.durations, f.waits, f.lates FROM pgsched.rollups f
    WHERE f.width = %(width)s AND f.job_id = %(job_id)s AND f.from_at = g.at AND f.started > 0 OFFSET 0
) r
GROUP BY 1
