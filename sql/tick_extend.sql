-- tick_extend: an excluded stretch that goes on from the batch before gets no new row: the row it has grows. Decided
-- again (it is covered already) it stays as it is. A row that somebody has locked does not grow: the rest of the stretch
-- gets a row of its own.
-- params: parallel arrays job_ids bigint[], slots timestamptz[], reasons text[], covers_untils timestamptz[],
--         covers_counts bigint[], extends timestamptz[] (the mark that the stretch goes on from)
-- returns: (job_id, slot) of the stretches that need no row of their own
-- locks: the rows that grow; never waits
WITH given AS MATERIALIZED (
    SELECT s.*, r.id, r.covers_until AS so_far
    FROM unnest(%(job_ids)s::bigint[], %(slots)s::timestamptz[], %(reasons)s::text[],
                %(covers_untils)s::timestamptz[], %(covers_counts)s::bigint[], %(extends)s::timestamptz[])
        AS s(job_id, slot, reason, covers_until, covers_count, extend)
    CROSS JOIN LATERAL (
        SELECT r.id, r.state, r.reason, r.covers_until FROM pgsched.runs r
        WHERE r.job_id = s.job_id AND r.scheduled_at < s.slot AND r.origin = 'schedule'
        ORDER BY r.scheduled_at DESC LIMIT 1
    ) r
    WHERE r.state = 'skipped' AND r.reason = s.reason AND r.covers_until >= s.extend
), free AS MATERIALIZED (
    SELECT r.id FROM given g JOIN pgsched.runs r ON r.id = g.id FOR NO KEY UPDATE OF r SKIP LOCKED
), grown AS (
    UPDATE pgsched.runs r SET covers_until = g.covers_until, covers_count = r.covers_count + g.covers_count
    FROM given g JOIN free USING (id) WHERE r.id = g.id AND r.covers_until = g.extend
    RETURNING r.id
)
SELECT g.job_id, g.slot FROM given g LEFT JOIN grown ON grown.id = g.id
WHERE grown.id IS NOT NULL OR g.so_far >= g.covers_until
