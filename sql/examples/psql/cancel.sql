-- Cancels a run: at once if it has not begun; a running one is asked to stop.
--   psql -X -v run=7 -f cancel.sql "$PGSCHED_DSN"
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

SELECT coalesce(pgsched.cancel(:run, 'ordered by mistake'), 'no such run');
SELECT state, coalesce(reason, cancel_reason) FROM pgsched.runs WHERE id = :run;
