-- Functions mean the same in every client's session: what a setting changes of their text, or of what they read and
-- write, they set for themselves. A function that is replaced later has to say so itself (tests/hostile/test_settings.py).

-- Without it a backslash between plain quotes is an escape, and a regular expression another one. What runs for each new
-- row, or is to be inlined, sets nothing, which would cost too much: there every backslash stands in E''.
DO $$
DECLARE
    one regprocedure;
BEGIN
    FOR one IN SELECT p.oid FROM pg_proc p
               WHERE p.pronamespace = 'pgsched'::regnamespace AND p.proconfig IS NOT NULL AND strpos(p.prosrc, chr(92)) > 0
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET standard_conforming_strings = on', one);
    END LOOP;
END $$;

-- Intervals that clients write as text: kept, and read again by others.
ALTER FUNCTION pgsched.keep_error(jsonb) SET IntervalStyle = 'postgres';
ALTER FUNCTION pgsched.unique_bucket(text, timestamptz) SET IntervalStyle = 'postgres';
ALTER FUNCTION pgsched.unique_bucket(text, timestamptz) SET TimeZone = 'UTC';

-- Rows that are kept, or sent, as JSON for others to read.
DO $$
DECLARE
    one text;
BEGIN
    FOREACH one IN ARRAY ARRAY['audit_jobs_added', 'audit_jobs_changed', 'audit_jobs_gone', 'audit_setting',
                               'audit_backfills', 'audit_keys', 'alerts_notify'] LOOP
        EXECUTE format('ALTER FUNCTION pgsched.%I() SET IntervalStyle = ''postgres''', one);
        EXECUTE format('ALTER FUNCTION pgsched.%I() SET TimeZone = ''UTC''', one);
        EXECUTE format('ALTER FUNCTION pgsched.%I() SET extra_float_digits = 1', one);
    END LOOP;
END $$;
