-- leader_seen: say that this term is alive.
-- params: term bigint, resign boolean
-- returns: nothing
-- locks: that row
UPDATE pgsched.leader SET seen_at = clock_timestamp(),
    resigned_at = CASE WHEN %(resign)s THEN clock_timestamp() ELSE resigned_at END
WHERE term = %(term)s
