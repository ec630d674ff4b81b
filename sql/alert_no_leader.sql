-- alert_no_leader: is nobody leading? Opens the incident if so; two workers open one.
-- params: gone_s float8 (not seen for so long)
-- returns: (missing boolean, opened boolean)
-- locks: that incident
WITH newest AS (
    SELECT holder, coalesce(resigned_at, seen_at) AS until FROM pgsched.leader ORDER BY term DESC LIMIT 1
), missing AS MATERIALIZED (
    SELECT coalesce(CASE WHEN n.until IS NOT NULL THEN format('nobody leads since %%s, when %%s did: no slot is decided, no lost run taken back', date_trunc('second', n.until), n.holder) END,
                    'nobody has ever led: no slot is decided') AS details
    FROM (SELECT 1) one LEFT JOIN newest n ON true
    WHERE n.until IS NULL OR n.until < clock_timestamp() - make_interval(secs => %(gone_s)s)
), opened AS (
    INSERT INTO pgsched.alerts (job_id, kind, details) SELECT 0, 'no_leader', details FROM missing
    ON CONFLICT (job_id, kind) WHERE closed_at IS NULL DO NOTHING RETURNING id
)
SELECT EXISTS (SELECT FROM missing) AS missing, EXISTS (SELECT FROM opened) AS opened
