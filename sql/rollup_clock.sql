-- rollup_clock: the database's time, asked for before anything that it is to be compared with.
-- params: none
-- returns: now timestamptz
-- locks: none
SELECT clock_timestamp() AS now
