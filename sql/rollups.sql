-- Figures that are kept longer than the runs.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: rollup
-- count the runs that ended after the mark and up to a time, and move the mark there. The caller has locked the mark
-- (rollup_lock), and no transaction can still commit an end in that time.
-- params: after text (timestamptz), until timestamptz, aside bigint[] as text: runs to leave out
-- returns: counted bigint
-- locks: the rows of those minutes and hours, and the mark
WITH ended AS (
    -- date_part, not extract, which makes a numeric of each; date_bin asks for no zone
    SELECT date_bin('1 minute', r.finished_at, '2000-01-01Z') AS minute, coalesce(r.job_id, 0) AS job_id, r.queue, r.state,
        r.finished_at, r.attempt, r.started_at IS NOT NULL AS started,
        -- one for all of a kind where the task may be another text in each run
        CASE WHEN r.kind IN ('task', 'command') THEN left(r.task, 100) ELSE '(' || r.kind || ')' END AS task,
        greatest(date_part('epoch', r.finished_at - r.started_at), 0) AS duration_s,
        -- settling a run that failed for good moves available_at behind its start: its waiting time is lost
        CASE WHEN r.available_at <= r.started_at THEN date_part('epoch', r.started_at - r.available_at) END AS wait_s,
        CASE WHEN r.origin = 'schedule' AND r.attempt = 1
             THEN greatest(date_part('epoch', r.started_at - r.scheduled_at), 0) END AS late_s
    FROM pgsched.runs r
    WHERE r.phase >= 3 /* ended */ AND r.finished_at > %(after)s::timestamptz AND r.finished_at <= %(until)s
      AND r.id <> ALL (%(aside)s::text::bigint[])
), fine AS MATERIALIZED (
    -- the only step that has a row for each run
    SELECT e.minute, e.job_id, e.queue, e.task, e.state,
        CASE WHEN e.started THEN pgsched.bin_of(e.duration_s) END AS duration_bin,
        pgsched.bin_of(e.wait_s) AS wait_bin, pgsched.bin_of(e.late_s) AS late_bin,
        count(*) AS n, count(*) FILTER (WHERE e.started) AS started,
        count(*) FILTER (WHERE e.started AND e.attempt > 1) AS retried,
        coalesce(sum(e.duration_s) FILTER (WHERE e.started), 0) AS duration_s, coalesce(sum(e.wait_s), 0) AS wait_s,
        coalesce(sum(e.late_s), 0) AS late_s, count(e.late_s) AS late, max(e.late_s) AS late_max_s,
        max(e.finished_at) AS last_at
    FROM ended e GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
), apart AS MATERIALIZED (
    SELECT w.width, w.from_at, w.job_id, f.queue, f.task, f.state, sum(f.n)::bigint AS runs,
        sum(f.started)::bigint AS started, sum(f.retried)::bigint AS retried, sum(f.duration_s) AS duration_s,
        sum(f.wait_s) AS wait_s, sum(f.late_s) AS late_s, sum(f.late)::bigint AS late, max(f.late_max_s) AS late_max_s,
        max(f.last_at) AS last_at
    FROM fine f CROSS JOIN LATERAL (
        VALUES ('minute', f.minute, 0::bigint), ('hour', date_trunc('hour', f.minute, 'UTC'), f.job_id))
        AS w(width, from_at, job_id)
    GROUP BY 1, 2, 3, 4, 5, 6
), sums AS (
    SELECT * FROM apart
    UNION ALL
    SELECT width || ' of all', from_at, 0, '', '', state, sum(runs)::bigint, sum(started)::bigint, sum(retried)::bigint,
        sum(duration_s), sum(wait_s), sum(late_s), sum(late)::bigint, max(late_max_s), max(last_at)
    FROM apart GROUP BY 1, 2, state
), binned_apart AS MATERIALIZED (
    SELECT w.width, w.from_at, w.job_id, f.queue, f.task, f.state, m.what, m.bin, sum(f.n) AS n
    FROM fine f CROSS JOIN LATERAL (
        VALUES ('minute', f.minute, 0::bigint), ('hour', date_trunc('hour', f.minute, 'UTC'), f.job_id))
        AS w(width, from_at, job_id)
    CROSS JOIN LATERAL (VALUES ('duration', f.duration_bin), ('wait', f.wait_bin), ('late', f.late_bin)) AS m(what, bin)
    WHERE m.bin IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
), binned AS (
    SELECT * FROM binned_apart
    UNION ALL
    SELECT width || ' of all', from_at, 0, '', '', state, what, bin, sum(n) FROM binned_apart GROUP BY 1, 2, 6, 7, 8
), bins AS (
    SELECT width, from_at, job_id, queue, task, state,
        pgsched.histogram(bin, n) FILTER (WHERE what = 'duration') AS durations,
        pgsched.histogram(bin, n) FILTER (WHERE what = 'wait') AS waits,
        pgsched.histogram(bin, n) FILTER (WHERE what = 'late') AS lates
    FROM binned GROUP BY 1, 2, 3, 4, 5, 6
), counted AS (
    INSERT INTO pgsched.rollups AS r (width, from_at, job_id, queue, task, state, runs, started, retried, duration_s,
        wait_s, late_s, late, late_max_s, last_at, durations, waits, lates)
    SELECT width, from_at, job_id, queue, task, state, runs, started, retried, duration_s, wait_s, late_s, late,
        late_max_s, last_at, coalesce(durations, none.bins), coalesce(waits, none.bins), coalesce(lates, none.bins)
    FROM sums LEFT JOIN bins USING (width, from_at, job_id, queue, task, state)
    CROSS JOIN (SELECT array_fill(0::bigint, ARRAY[26]) AS bins) none
    ON CONFLICT (width, from_at, job_id, queue, task, state) DO UPDATE SET
        runs = r.runs + excluded.runs, started = r.started + excluded.started, retried = r.retried + excluded.retried,
        duration_s = r.duration_s + excluded.duration_s, wait_s = r.wait_s + excluded.wait_s,
        late_s = r.late_s + excluded.late_s, late = r.late + excluded.late,
        late_max_s = greatest(r.late_max_s, excluded.late_max_s), last_at = greatest(r.last_at, excluded.last_at),
        -- not by a function: a call costs more than the rest of the row
        durations = ARRAY(SELECT b.old + b.new FROM unnest(r.durations, excluded.durations) WITH ORDINALITY b(old, new, n) ORDER BY n),
        waits = ARRAY(SELECT b.old + b.new FROM unnest(r.waits, excluded.waits) WITH ORDINALITY b(old, new, n) ORDER BY n),
        lates = ARRAY(SELECT b.old + b.new FROM unnest(r.lates, excluded.lates) WITH ORDINALITY b(old, new, n) ORDER BY n)
), moved AS (
    UPDATE pgsched.rollup_mark SET counted_until = greatest(counted_until, %(until)s)
)
SELECT coalesce(sum(n), 0)::bigint AS counted FROM fine


-- name: rollup_lock
-- lock the mark up to which runs are counted, so that no other session counts at the same time.
-- params: none
-- returns: counted_until timestamptz (-infinity: nothing yet), as text; now timestamptz
-- locks: that row, until the transaction ends
SELECT counted_until::text AS counted_until, clock_timestamp() AS now FROM pgsched.rollup_mark FOR UPDATE


-- name: rollup_look
-- check whether there is anything to count, and which transactions may still commit runs that have ended by now.
-- params: none
-- returns: (now timestamptz; writers text[]: the transactions that are writing runs, read after the clock: those that
--          begin later end their runs later; some boolean: runs have ended after the mark)
-- locks: none
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT now, ARRAY(
        SELECT l.virtualtransaction FROM pg_catalog.pg_locks l
        WHERE clock.now IS NOT NULL AND l.locktype = 'relation' AND l.relation = 'pgsched.runs'::regclass
          AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AND l.granted
          AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
          AND l.pid IS DISTINCT FROM pg_backend_pid()) AS writers,
    EXISTS (SELECT FROM pgsched.runs r
            WHERE r.phase >= 3 /* ended */ AND r.finished_at > (SELECT m.counted_until
                FROM pgsched.rollup_mark m)) AS some
FROM clock


-- name: rollup_prune
-- delete a batch of minutes and a batch of hours that the settings keep no longer.
-- params: n int
-- returns: nothing
-- locks: those rows
WITH gone AS (
    SELECT r.ctid FROM pgsched.rollups r
    WHERE r.width IN ('minute', 'minute of all') AND r.from_at < (SELECT clock_timestamp() - keep_minutes FROM pgsched.retention)
    LIMIT %(n)s
), gone_hours AS (
    SELECT r.ctid FROM pgsched.rollups r
    WHERE r.width IN ('hour', 'hour of all') AND r.from_at < (SELECT clock_timestamp() - keep_hours FROM pgsched.retention)
    LIMIT %(n)s
)
DELETE FROM pgsched.rollups WHERE ctid = ANY (ARRAY(SELECT ctid FROM gone UNION ALL SELECT ctid FROM gone_hours))


-- name: rollup_reach
-- find how far the next runs to count reach.
-- params: after text (timestamptz), safe timestamptz, n int, aside bigint[] as text: runs to leave out
-- returns: (found bigint, until_at timestamptz: the end of the last of them, last_id bigint: a run that ended then)
-- locks: none
SELECT count(*) AS found, max(finished_at) AS until_at, max(id) AS last_id FROM (
    SELECT finished_at, id FROM pgsched.runs
    WHERE phase >= 3 /* ended */ AND finished_at > %(after)s::timestamptz AND finished_at <= %(safe)s
      AND id <> ALL (%(aside)s::text::bigint[])
    ORDER BY finished_at LIMIT %(n)s
) next


-- name: rollup_stretches
-- return what was counted, by intervals of one length. If more than `most` minutes or hours have figures, one of each
-- `every` is read. Each is found by the primary key, so the cost is that of what is read. The hours that a job has are
-- found by an index alone.
-- params: unit, width text, job_id bigint (0: all jobs), from_at timestamptz (the first interval begins there),
--         until_at timestamptz, width_s float8 (of an interval), most, every int, durations boolean (false: waits)
-- returns: (begins_at, every: of how many one was read, started, retried, dead, missed, late_max_s, durations or waits
--          (the other one: nulls), lates bigint[] (pgsched.bin_of)), one row for each interval that has figures
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
