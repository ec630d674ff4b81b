-- What became of a slot of a job, and why: its own row, or the row of the stretch that it lies in.
--   psql -X -v job='nightly totals' -v at='2026-03-29 02:00 Europe/Berlin' -f explain.sql "$PGSCHED_DSN"
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

SELECT CASE WHEN r.scheduled_at = :'at' THEN r.state ELSE coalesce(r.covers_state, r.state) END AS state,
    coalesce(r.covers_reason, r.reason, r.error)
FROM pgsched.jobs j JOIN pgsched.runs r ON r.job_id = j.id
WHERE j.name = :'job' AND (r.scheduled_at = :'at' OR :'at' BETWEEN r.covers_from AND r.covers_until)
ORDER BY r.scheduled_at = :'at' DESC, r.covers_until - r.covers_from LIMIT 1;

-- why nothing is planned, if the job cannot be
SELECT 'error', error FROM pgsched.jobs WHERE name = :'job' AND error IS NOT NULL;
