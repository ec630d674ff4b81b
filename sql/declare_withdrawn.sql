-- declare_withdrawn: the jobs of apps that are at work which no process of theirs declares, nor has for a while. A process
--                    that has not signed off counts until it is written off (prune_workers); one that does not say what
--                    it declares may declare anything; and where no process is alive that says so, all is left.
-- params: grace_s float8, n int
-- returns: id bigint, name text, app text
-- locks: none
WITH counted AS MATERIALIZED (
    SELECT DISTINCT app, declares FROM pgsched.workers
    WHERE app IS NOT NULL
      AND (stopped_at IS NULL OR stopped_at > clock_timestamp() - make_interval(secs => %(grace_s)s::float8))
), at_work AS MATERIALIZED (
    SELECT DISTINCT app FROM pgsched.workers
    WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - lease
      AND app NOT IN (SELECT app FROM counted WHERE declares IS NULL)
), declared AS MATERIALIZED (
    SELECT c.app, d.name FROM counted c CROSS JOIN LATERAL unnest(c.declares) AS d(name)
)
SELECT j.id, j.name, j.declared_by AS app
FROM at_work a JOIN pgsched.jobs j ON j.declared_by = a.app
WHERE (j.declared_by, j.name) NOT IN (SELECT app, name FROM declared)
LIMIT %(n)s
