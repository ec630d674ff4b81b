-- run_retry_many: revive those of some runs that are still in one of the named states.
-- params: ids bigint[], states text[], now boolean (start them whatever became of runs that they waited for)
-- returns: (id, before, after: queued or waiting, skipped: null, or why it was left alone); none for a run that is not there, or that
--          another session holds
-- locks: those runs, skipping those that others hold. A unique_key that an unfinished run has, or one revived here before
--        it, is no error; one that is taken between the look and the change is, and fails the statement.
WITH held AS MATERIALIZED (
    SELECT found.* FROM unnest(%(ids)s::text::bigint[]) AS g(id) CROSS JOIN LATERAL (
        SELECT r.id, r.state, r.unique_key FROM pgsched.runs r WHERE r.id = g.id FOR UPDATE SKIP LOCKED
    ) found
), judged AS MATERIALIZED (
    SELECT id, state, CASE
        WHEN state <> ALL (%(states)s::text::text[]) THEN 'it is ' || state || ' by now'
        WHEN unique_key IS NOT NULL AND EXISTS (
            SELECT FROM pgsched.runs o WHERE o.unique_key = h.unique_key AND o.phase < 3)
            OR unique_key IS NOT NULL AND EXISTS (
            SELECT FROM held o WHERE o.unique_key = h.unique_key AND o.id < h.id
                AND o.state = ANY (%(states)s::text::text[]))
            THEN 'an unfinished run has its unique_key' END AS obstacle
    FROM held h
)
SELECT id, state AS before, CASE WHEN obstacle IS NOT NULL THEN NULL WHEN %(now)s THEN pgsched.retry_now(id)
    ELSE pgsched.retry(id) END AS after, obstacle AS skipped
FROM judged ORDER BY id
