-- What went wrong with a run, attempt for attempt; then it is tried again.
--   psql -X -v run=7 -f dead.sql "$PGSCHED_DSN"
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

SELECT state, error FROM pgsched.runs WHERE id = :run;
-- traceback and log_tail, the end of its output, are there, too
SELECT 'attempt', attempt, outcome, error FROM pgsched.attempts WHERE run_id = :run ORDER BY attempt, finished_at;
SELECT 'retried', pgsched.retry(:run);
