-- declare_try_lock: as declare_lock, but that nobody waits: a process may be declaring just now.
-- params: none
-- returns: locked boolean
-- locks: advisory, until the transaction ends
SELECT pg_try_advisory_xact_lock(hashtextextended('pgsched.app.declarations', 0)) AS locked
