-- leader_fence: first statement of every leader transaction: one leader at a time writes, whatever sessions believe.
-- params: none
-- returns: locked boolean
-- locks: advisory, until the transaction ends
SELECT pg_try_advisory_xact_lock(hashtextextended('pgsched.leader.fence', 0)) AS locked
