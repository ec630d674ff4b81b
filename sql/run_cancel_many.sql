-- run_cancel_many: cancel those of some runs that are still in one of the named states.
-- params: ids bigint[], states text[], reason text
-- returns: (id, before, after: cancelled, or requested of its worker, skipped: null, or why it was left alone); none for a
--          run that is not there, or that another session holds
-- locks: those runs, skipping those that others hold
WITH held AS MATERIALIZED (
    SELECT found.* FROM unnest(%(ids)s::text::bigint[]) AS g(id) CROSS JOIN LATERAL (
        SELECT r.id, r.state FROM pgsched.runs r WHERE r.id = g.id FOR NO KEY UPDATE SKIP LOCKED
    ) found
), judged AS MATERIALIZED (
    SELECT id, state, CASE WHEN state <> ALL (%(states)s::text::text[]) THEN 'it is ' || state || ' by now' END
        AS obstacle
    FROM held
)
SELECT id, state AS before, CASE WHEN obstacle IS NULL THEN pgsched.cancel(id, %(reason)s) END AS after,
    obstacle AS skipped
FROM judged ORDER BY id
