-- testing_travel: time goes on for runs and keys: what would come to pass by then is as near as it would be.
-- params: by interval
-- returns: nothing
-- locks: the unfinished runs and the kept keys
WITH keys AS (
    UPDATE pgsched.kept_keys SET expires_at = expires_at - %(by)s::interval
)
UPDATE pgsched.runs SET
    -- not the marker of one that waits for others, which keeps the time that it is to start at among its options
    available_at = CASE WHEN available_at < '8998-01-01 00:00Z' THEN available_at - %(by)s::interval
                        ELSE available_at END,
    options = CASE WHEN options ? 'not_before' THEN options || jsonb_build_object('not_before',
        (options ->> 'not_before')::timestamptz - %(by)s::interval) ELSE options END,
    expires_at = expires_at - %(by)s::interval,
    held_until = held_until - %(by)s::interval
WHERE phase < 3 AND state <> 'running'
