-- rollup: count the endings behind the mark up to an instant, and move the mark there. The caller holds the mark
-- (rollup_lock), and nobody can still commit an ending of that time.
-- params: after text (timestamptz), until timestamptz
-- returns: counted bigint
-- locks: the rows of those minutes and hours, and the mark
WITH ended AS (
    -- date_part, not extract, which makes a numeric of each; date_bin asks for no zone
    SELECT date_bin('1 minute', r.finished_at, '2000-01-01Z') AS minute, coalesce(r.job_id, 0) AS job_id, r.queue, r.state,
        r.finished_at, r.attempt, r.started_at IS NOT NULL AS started,
        -- one for all of a kind where the task may be another text in each run
        CASE WHEN r.kind IN ('python', 'command') THEN left(r.task, 100) ELSE '(' || r.kind || ')' END AS task,
        greatest(date_part('epoch', r.finished_at - r.started_at), 0) AS duration_s,
        -- settling what failed for good moves available_at behind the start: how long it had waited is not known any more
        CASE WHEN r.available_at <= r.started_at THEN date_part('epoch', r.started_at - r.available_at) END AS wait_s,
        CASE WHEN r.origin = 'schedule' AND r.attempt = 1
             THEN greatest(date_part('epoch', r.started_at - r.scheduled_at), 0) END AS late_s
    FROM pgsched.runs r
    WHERE r.phase >= 3 AND r.finished_at > %(after)s::timestamptz AND r.finished_at <= %(until)s
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
