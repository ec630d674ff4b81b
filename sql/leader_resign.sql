-- leader_resign: give the session lock back and wake the candidates.
-- params: none
-- returns: nothing of interest
-- locks: releases the advisory lock
SELECT pg_advisory_unlock(hashtextextended('pgsched.leader', 0)), pg_notify('pgsched_election', 'resigned')
