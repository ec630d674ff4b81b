-- The state that a settled attempt leaves its run in; a claim that was released was never started, one that was snoozed
-- asked to be started later.
CREATE OR REPLACE FUNCTION pgsched.settled_state(outcome text, retry boolean, attempts_left boolean, cancel boolean)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN outcome = 'succeeded' THEN 'succeeded'
        WHEN outcome = 'cancelled' OR cancel THEN 'cancelled'
        WHEN outcome IN ('interrupted', 'released') THEN 'queued'
        WHEN outcome = 'snoozed' OR retry AND attempts_left THEN 'scheduled'
        ELSE 'dead' END
$$;
