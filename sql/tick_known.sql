-- tick_known: the rows that jobs have already for slots in these stretches.
-- params: parallel arrays job_ids bigint[], firsts timestamptz[], lasts timestamptz[]
-- returns: (job_id, first, last): the slots that such a row stands for, its own among them whatever it says
-- locks: none
SELECT s.job_id, k.first, k.last
FROM unnest(%(job_ids)s::bigint[], %(firsts)s::timestamptz[], %(lasts)s::timestamptz[]) AS s(job_id, first, last)
JOIN pgsched.runs r ON r.job_id = s.job_id AND r.scheduled_at BETWEEN s.first AND s.last
CROSS JOIN LATERAL (VALUES (coalesce(r.covers_from, r.scheduled_at), coalesce(r.covers_until, r.scheduled_at)),
                           (r.scheduled_at, r.scheduled_at)) AS k(first, last)
