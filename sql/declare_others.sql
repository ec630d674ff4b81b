-- declare_others: is another process of this app there, or may one come back? One that did not sign off counts until it is
--                 given up (prune_workers), and for a while after that: after an outage all look gone that are not.
-- params: app text, grace_s float8
-- returns: others boolean
-- locks: none
SELECT EXISTS (
    SELECT FROM pgsched.workers WHERE app = %(app)s AND (stopped_at IS NULL OR stopping_at IS NULL
        AND stopped_at > clock_timestamp() - make_interval(secs => %(grace_s)s::float8))
) AS others
