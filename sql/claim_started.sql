-- claim_started: their commit took long: attempts that were to start at their instant have started only now, or some time
-- before they ended. A row that somebody holds stays as it is.
-- params: ids bigint[], token uuid
-- returns: none
-- locks: row locks on those runs, skipping those that others hold
UPDATE pgsched.runs SET started_at = least(clock_timestamp(), finished_at)
WHERE id = ANY (ARRAY(
    SELECT r.id FROM pgsched.runs r
    WHERE r.id = ANY (%(ids)s::text::bigint[]) AND r.token = %(token)s AND r.started_at IS NOT NULL
      AND (r.state = 'running' OR r.finished_at IS NOT NULL)
    FOR NO KEY UPDATE SKIP LOCKED
))
