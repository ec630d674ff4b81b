-- Waits until a run has ended, and says how. Nothing is sent when a run ends: look, and pause longer each time.
--   psql -X -v run=7 -f wait.sql "$PGSCHED_DSN"
\set QUIET on
\set ON_ERROR_STOP on
\pset format unaligned
\pset fieldsep ' '
\pset tuples_only on

SET statement_timeout = '10min';  -- so long we wait
SET example.run = :'run';

DO $$
DECLARE
    pause double precision := 0.05;
BEGIN
    WHILE EXISTS (SELECT FROM pgsched.runs WHERE id = current_setting('example.run')::bigint AND finished_at IS NULL) LOOP
        COMMIT;  -- an open transaction would hold vacuum back
        PERFORM pg_sleep(pause);
        pause := least(pause * 2, 1);
    END LOOP;
END $$;

SELECT state, coalesce(result::text, error, reason) FROM pgsched.runs WHERE id = :run;
