-- web_depth: how many runs have not ended, by state, counted up to n of each phase through its partial index.
-- params: n int
-- returns: one row: queued, running, scheduled, waiting, counted (false: there are more than were counted)
-- locks: none
WITH o AS MATERIALIZED (
    (SELECT state FROM pgsched.runs WHERE phase = 2 LIMIT %(n)s)
    UNION ALL (SELECT state FROM pgsched.runs WHERE phase = 1 LIMIT %(n)s)
    UNION ALL (SELECT state FROM pgsched.runs WHERE phase = 0 AND ready_at IS NULL LIMIT %(n)s)
    UNION ALL (SELECT state FROM pgsched.runs WHERE phase = 0 AND ready_at IS NOT NULL LIMIT %(n)s)
)
SELECT count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state = 'running') AS running,
    count(*) FILTER (WHERE state = 'scheduled') AS scheduled, count(*) FILTER (WHERE state = 'waiting') AS waiting,
    count(*) < %(n)s AS counted
FROM o
