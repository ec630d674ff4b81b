-- leader_term: second statement of every leader transaction: the newest term. A statement of its own, because its
-- snapshot must be younger than the fence lock.
-- params: none
-- returns: term bigint (null: nobody ever led)
-- locks: none
SELECT max(term) AS term FROM pgsched.leader
