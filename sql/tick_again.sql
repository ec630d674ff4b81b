-- tick_again: jobs whose time zone the tz database of a former leader did not know are due again: this one's may. What
-- came meanwhile is decided late.
-- params: none
-- returns: nothing; the number of rows says how many
-- locks: FOR NO KEY UPDATE on those jobs, skipping locked ones. Those that are paused are looked at when they go on.
UPDATE pgsched.jobs j SET next_run_at = clock_timestamp() WHERE j.id = ANY (ARRAY(
    SELECT o.id FROM pgsched.jobs o
    WHERE o.error IS NOT NULL AND starts_with(o.error, 'timezone: ') AND o.next_run_at IS NULL AND NOT o.paused
    FOR NO KEY UPDATE SKIP LOCKED))
