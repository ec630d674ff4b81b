-- plans_look: jobs, and the next slots that were planned for them, for a new leader to compare with its own rules of zones.
-- params: after bigint (id), n int
-- returns: (id, schedule, timezone, mark, next_run_at) in the order of id; `mark`: its slots lie after this; schedule is
--          null where no zone has a say in the next slot, or where it is due and will be planned anyway
-- locks: none
SELECT j.id, CASE WHEN j.next_run_at > clock_timestamp() AND j.timezone <> 'UTC' AND j.decided_until <> '-infinity'
                       AND j.schedule !~* '@(every|after)' THEN j.schedule END AS schedule,
    j.timezone, greatest(nullif(j.decided_until, '-infinity'), j.starts_at - interval '1 microsecond') AS mark, j.next_run_at
FROM pgsched.jobs j WHERE j.id > %(after)s
ORDER BY j.id LIMIT %(n)s
