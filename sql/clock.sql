-- clock: the database's time, in seconds since 1970.
-- params: none
-- returns: one row: seconds float8
-- locks: none
SELECT extract(epoch FROM clock_timestamp())::float8
