-- declare_lock: ten workers that start at once take turns in reconciling what their code declares.
-- params: none
-- returns: nothing
-- locks: advisory, until the transaction ends. One for all apps: two that declare the same names in other orders
--        would deadlock.
SELECT pg_advisory_xact_lock(hashtextextended('pgsched.app.declarations', 0))
