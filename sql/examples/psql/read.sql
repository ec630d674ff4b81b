-- What a job did, does and will do: its status, its next slots, its newest runs, its slots, and why one of them did not run.
--   psql -X -v job='nightly totals' -v at='2026-03-29 02:00 Europe/Berlin' -f read.sql "$PGSCHED_DSN"
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

SELECT state, next_slot IS NOT NULL AS planned, last_state, late, running, queued, failures FROM pgsched.job_status(:'job');

SELECT slot, local, note FROM pgsched.preview(:'job', 3);

SELECT run, slot, state, took, late, why FROM pgsched.recent_runs(:'job', 2);

SELECT first_slot, last_slot, slots, state, reason FROM pgsched.slots(:'job', now() - interval '30 days');

SELECT pgsched.explain(:'job', :'at');
