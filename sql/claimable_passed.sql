-- claimable_passed: of each priority the first claimable run that the claim cursor has passed
-- params: queue text, kinds text[], tasks text[] (as claim), parallel arrays priorities smallint[],
--         until_ats timestamptz[], until_ids bigint[]: the claim cursor of those priorities that have one
-- returns: (priority smallint, available_at timestamptz, id bigint), none of most priorities
-- It reads every dead entry that the cursor spares the claims, and is therefore asked beside them (worker/aside.py).
-- What somebody else is about to claim is among the answers: a claim skips it.
SELECT c.priority, found.available_at, found.id
FROM unnest(%(priorities)s::text::smallint[], %(until_ats)s::text::timestamptz[], %(until_ids)s::text::bigint[])
    AS c(priority, until_at, until_id)
CROSS JOIN LATERAL (
    SELECT available_at, id FROM pgsched.runs
    WHERE phase = 2 AND state = 'queued' AND queue = %(queue)s AND priority = c.priority
      AND (available_at, id) <= (c.until_at, c.until_id)
      AND (kind = ANY (%(kinds)s::text[]) OR kind = 'python' AND task = ANY (%(tasks)s::text[]))
      AND task <> ALL (ARRAY(SELECT p.name FROM pgsched.pauses p WHERE p.what = 'task'
                             AND coalesce(p.resume_at > clock_timestamp(), true)))
      AND (expires_at IS NULL OR expires_at > clock_timestamp() OR started_at IS NOT NULL)
    ORDER BY available_at, id
    LIMIT 1
) found
WHERE NOT EXISTS (SELECT FROM pgsched.pauses p
                  WHERE (p.what, p.name) IN (('all', ''), ('queue', %(queue)s), ('limit', %(queue)s))
                    AND coalesce(p.resume_at > clock_timestamp(), true))
