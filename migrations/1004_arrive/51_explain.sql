-- What a run waits for that waits for other runs: "run 7 (nightly, running), the same slot of weekly".
CREATE OR REPLACE FUNCTION pgsched.waited_for(r pgsched.runs) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(o.words, ', ' ORDER BY o.place) FILTER (WHERE o.place <= 3)
        || CASE WHEN max(o.place) > 3 THEN format(' and %s more', max(o.place) - 3) ELSE '' END
    FROM (
        SELECT w.words, row_number() OVER (ORDER BY w.rank, w.id) AS place FROM (
            SELECT 1 AS rank, p.id, format('run %s (%s)', p.id, concat_ws(', ', j.name, p.state)) AS words
            FROM pgsched.dependencies d JOIN pgsched.runs p ON p.id = d.parent_id LEFT JOIN pgsched.jobs j ON j.id = p.job_id
            WHERE r.available_at >= '8998-01-01 00:00Z' AND d.run_id = r.id AND d.state = 'open'
            UNION ALL
            SELECT 2, a.job_id, CASE r.options ->> 'after_match' WHEN 'latest' THEN 'the newest slot of '
                WHEN 'since_last' THEN 'a success of ' ELSE 'the same slot of ' END || coalesce(j.name, 'job ' || a.job_id)
            FROM pgsched.after_jobs_of(r.options) a(job_id) LEFT JOIN pgsched.jobs j ON j.id = a.job_id
            WHERE r.available_at = '8998-01-01 00:00Z'
                AND (r.options ? 'after_match'
                     OR NOT EXISTS (SELECT FROM pgsched.runs o WHERE o.job_id = a.job_id AND o.scheduled_at = r.scheduled_at))
            UNION ALL  -- the job's own open runs, where its policy holds this one
            SELECT 3, o.id, format('run %s (%s, slot %s)', o.id, o.state, pgsched.utc(o.scheduled_at))
            FROM (SELECT q.id, q.state, q.scheduled_at, q.origin FROM pgsched.runs q
                  WHERE q.job_id = r.job_id AND q.phase < 3 /* open */ AND r.available_at < '8998-01-01 00:00Z' LIMIT 1000) o
            WHERE o.id <> r.id AND o.origin <> 'backfill'
                AND (o.state <> 'waiting' OR (o.scheduled_at, o.id) < (r.scheduled_at, r.id))) w
    ) o
$$;
