-- A job is made, changed, run by hand, paused, resumed and deleted.
--   psql -X -f jobs.sql "$PGSCHED_DSN"
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

INSERT INTO pgsched.jobs (name, schedule, timezone, task, args)
VALUES ('nightly totals', '0 2 * * *', 'Europe/Berlin', 'orders.total', '{"order": 7}')
RETURNING 'created', schedule;

UPDATE pgsched.jobs SET schedule = '0 3 * * *', max_attempts = 5 WHERE name = 'nightly totals'
RETURNING 'changed', schedule;

-- beside its schedule, and with other arguments than the job's if you like
SELECT pgsched.trigger('nightly totals') AS run \gset
SELECT 'triggered', state FROM pgsched.runs WHERE id = :run;

UPDATE pgsched.jobs SET paused = true, paused_reason = 'the books are being closed' WHERE name = 'nightly totals'
RETURNING 'paused', paused_reason;

-- resume_from => 'pause' would let the catch-up policy decide the slots passed over
UPDATE pgsched.jobs SET paused = false WHERE name = 'nightly totals'
RETURNING 'resumed';

SELECT 'deleted', 'nightly totals' FROM pgsched.delete_job('nightly totals');
