-- claim_started: their commit took long: attempts that were to start at their instant start only now.
-- params: ids bigint[], token uuid
-- returns: none
-- locks: row locks on those runs
UPDATE pgsched.runs SET started_at = clock_timestamp()
WHERE id = ANY (%(ids)s::text::bigint[]) AND token = %(token)s AND state = 'running'
