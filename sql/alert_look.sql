-- alert_look: is there anything to watch, or to tell?
-- params: none
-- returns: (watched boolean: jobs are watched or incidents open; pending boolean: something is to be told or told again)
-- locks: none
SELECT EXISTS (SELECT FROM pgsched.jobs WHERE alert_after_failures IS NOT NULL OR max_lateness IS NOT NULL
               OR max_duration IS NOT NULL OR expect_every IS NOT NULL)
        OR EXISTS (SELECT FROM pgsched.alerts WHERE closed_at IS NULL) AS watched,
    EXISTS (SELECT FROM pgsched.alert_deliveries WHERE delivered_at IS NULL AND next_at <= clock_timestamp())
        -- every process has the log: what that was not told, nobody was
        OR EXISTS (SELECT FROM pgsched.alerts a
                   WHERE (a.closed_at IS NULL OR a.closed_at > clock_timestamp() - interval '1 hour'
                          OR a.closed_at > clock_timestamp() - interval '1 day' AND EXISTS (
                              SELECT FROM pgsched.alert_deliveries d WHERE d.alert_id = a.id AND d.sink = 'log'))
                     AND NOT EXISTS (SELECT FROM pgsched.alert_deliveries d WHERE d.alert_id = a.id AND d.sink = 'log'
                                     AND d.event = CASE WHEN a.closed_at IS NULL THEN 'opened' ELSE 'closed' END)) AS pending
