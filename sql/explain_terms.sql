-- explain_terms: the terms of leaders that reach past an instant.
-- params: since timestamptz
-- returns: (term, holder, elected_at, seen_at, resigned_at); a term that is alive was seen now
-- locks: none
SELECT term, holder, elected_at, resigned_at,
    CASE WHEN resigned_at IS NULL AND seen_at > clock_timestamp() - interval '5 seconds'
         THEN clock_timestamp() ELSE seen_at END AS seen_at
FROM pgsched.leader WHERE coalesce(resigned_at, seen_at) >= %(since)s ORDER BY term
