-- rollup_lock: take the mark of what is counted, so that nobody else counts meanwhile.
-- params: none
-- returns: counted_until timestamptz (-infinity: nothing yet), as text; now timestamptz
-- locks: that row, until the transaction ends
SELECT counted_until::text AS counted_until, clock_timestamp() AS now FROM pgsched.rollup_mark FOR UPDATE
