-- testing_travel: time goes on for runs and keys: what would come to pass by then is as near as it would be.
-- params: by interval
-- returns: nothing
-- locks: the unfinished runs and the kept keys
WITH keys AS (
    UPDATE pgsched.kept_keys SET expires_at = expires_at - %(by)s::interval
)
UPDATE pgsched.runs SET available_at = available_at - %(by)s::interval, expires_at = expires_at - %(by)s::interval,
    held_until = held_until - %(by)s::interval
WHERE phase < 3 AND state <> 'running'
