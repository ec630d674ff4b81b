-- settle_succeeded: record attempts that succeeded, each fenced by (id, token, running): what `settle` does, for the
-- one outcome that leaves no evidence behind.
-- params: ids bigint[] (ascending, none twice); firsts bigint[], tokens uuid[]: of each stretch of ids that have one token
--         the first id, and that token; results jsonb, an array as long as ids (null: none has one)
-- returns: no rows: to hand each one on would cost more than to look again for which were not ours. How many were is the
--          number of rows that it wrote.
-- locks: row locks on those runs, in the order given. Repeating it is harmless.
-- One pass over the key's index takes all ids; a row's place in an array is found by halving it (width_bucket).
-- The reason is always null: pg_notify's empty answer is none. The leader is told of what may free other runs.
UPDATE pgsched.runs r SET state = 'succeeded', phase = 3, finished_at = clock_timestamp(), error = NULL,
    reason = CASE WHEN r.has_children OR r.ready_at IS NOT NULL OR r.job_id IS NOT NULL AND EXISTS (
            SELECT FROM pgsched.runs w WHERE w.job_id = r.job_id AND w.phase < 3 AND w.state = 'waiting')
        THEN nullif(pg_notify('pgsched_leader', 'runs')::text, '') END,
    result = CASE WHEN %(results)s::jsonb IS NOT NULL
                  THEN nullif(%(results)s::jsonb -> width_bucket(r.id, %(ids)s::bigint[]) - 1, 'null') END
WHERE r.id = ANY (%(ids)s::bigint[])
  AND CASE WHEN r.state = 'running' AND r.token = (%(tokens)s::uuid[])[width_bucket(r.id, %(firsts)s::bigint[])]
           THEN true END
