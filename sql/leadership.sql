-- Leadership: terms, their fence, and the leader's duties.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: flags_rebuild
-- rebuild the flags that are kept outside of transactions (migrations/1000_initial/12_worker_tables.sql), for each new
-- leader and each migration.
-- params: none
-- returns: nothing
-- locks: queues, SHARE, unless another transaction is changing them
SELECT pgsched.rebuild_flags()


-- name: flags_may_rebuild
-- check whether this session may rebuild the flags. A migration that has nothing to do does not need this right, so a
-- worker's login is not refused.
-- params: none
-- returns: may boolean
-- locks: none
SELECT has_function_privilege('pgsched.rebuild_flags()', 'EXECUTE') AND NOT pg_is_in_recovery() AS may


-- name: leader_contested
-- check whether a candidate that did not get the session lock may stand anyway. It may if the lock is held by a session
-- that does not lead, as any session can, and the last term has not been seen for gone_s. If a leader's own session
-- holds the lock, the candidate waits, because the server ends that session.
-- params: gone_s float8
-- returns: contested boolean
-- locks: none
SELECT CASE WHEN pg_is_in_recovery() OR newest.seen_at > clock_timestamp() - make_interval(secs => %(gone_s)s)
                 AND newest.seen_at < clock_timestamp() + interval '2 seconds' AND newest.resigned_at IS NULL THEN false
    ELSE NOT EXISTS (
        SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (l.classid::bigint << 32) + l.objid::bigint = hashtextextended('pgsched.leader', 0::bigint)
            AND newest.by_lock AND l.pid = newest.backend)
    END AS contested
FROM (VALUES (1)) one LEFT JOIN pgsched.leader newest ON newest.term = (SELECT max(term) FROM pgsched.leader)


-- name: identity_missing
-- check whether the database has no identity. A dump of the schema alone lacks it.
-- params: none
-- returns: missing boolean
-- locks: none
SELECT NOT EXISTS (SELECT FROM pgsched.identity) AS missing


-- name: identity_make
-- give the database an identity, and a fleet.
-- params: none
-- returns: nothing
-- locks: the new row
INSERT INTO pgsched.identity DEFAULT VALUES ON CONFLICT DO NOTHING


-- name: leader_elect
-- begin a new term. Called under leader_fence.
-- params: holder text, hostname text, pid int, by_lock boolean (this session holds the session lock), shared boolean (a
--         pooler also lends this session to others), first boolean (leader_fence found no term to lock)
-- returns: (term bigint, grace_s float8: for this many seconds nothing is reaped. It is the longest lease of any worker
--          seen lately, less the time for which leaders have worked without a gap of half of the shortest lease
--          (steady_since): in that time, workers could renew. So several short terms in a row do not keep claims from
--          being reaped). No row: another candidate began the very first term
-- locks: the new row
WITH leases AS MATERIALIZED (
    -- a leader may pause for nearly three seconds: of shorter leases nothing is known
    SELECT max(lease) AS longest, CASE WHEN min(lease) >= interval '6 seconds' THEN min(lease) / 2 END AS gap
    FROM pgsched.workers WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - interval '1 day'
), new AS MATERIALIZED (
    SELECT CASE WHEN %(first)s THEN 1 ELSE coalesce(l.term, 0) + 1 END AS term, c.now,
        CASE WHEN l.seen_at BETWEEN c.now - leases.gap AND c.now THEN least(l.steady_since, c.now) ELSE c.now END AS since
    FROM leases CROSS JOIN (SELECT clock_timestamp() AS now) c
    LEFT JOIN pgsched.leader l ON l.term = (SELECT max(term) FROM pgsched.leader)
)
INSERT INTO pgsched.leader (term, holder, hostname, pid, by_lock, backend, steady_since)
SELECT term, %(holder)s, %(hostname)s, %(pid)s, %(by_lock)s, CASE WHEN NOT %(shared)s THEN pg_backend_pid() END, since
FROM new
ON CONFLICT (term) DO NOTHING
RETURNING term, (SELECT greatest(0, extract(epoch FROM leases.longest - (new.now - new.since)))::float8
                 FROM leases CROSS JOIN new) AS grace_s


-- name: leader_fence
-- lock the newest term: the first statement of every leader transaction. So only one leader at a time writes, whatever
-- sessions believe. Only leaders may lock the row of a term. A term that writes also counts as alive.
-- params: term bigint (null: the session is a candidate)
-- returns: term bigint: the newest, whose row is locked now; no row: another leader has it locked, or there was no
--          leader ever
-- locks: the row of the newest term, until the transaction ends
WITH newest AS MATERIALIZED (
    SELECT l.term, l.seen_at FROM pgsched.leader l WHERE l.term = (SELECT max(term) FROM pgsched.leader)
    FOR NO KEY UPDATE SKIP LOCKED
), seen AS (
    UPDATE pgsched.leader l SET seen_at = clock_timestamp() FROM newest
    WHERE l.term = newest.term AND l.term = %(term)s::bigint
      AND (newest.seen_at < clock_timestamp() - interval '1 second' OR newest.seen_at > clock_timestamp())
)
SELECT term FROM newest


-- name: leader_look
-- find out what the leader has to do, and when there will be something. One statement per round, so that a leader with
-- nothing to do costs next to nothing. It also records that this term is alive.
-- params: term bigint, searched_s float8 (when expired claims were last looked for, since 1970), count boolean (whether
--         to look for runs that are to be counted), lead_s float8 (jobs count as due this many seconds ahead), aside
--         bigint[] as text (jobs to leave out); jobs_s, scheduled_s, expires_s, held_s float8 (since 1970: nothing is
--         looked for below these, see pgsched/leader/timing/floors.py)
-- returns: (wait_s float8: seconds until something is due, null: nothing known; booleans: jobs: due jobs; runs: runs to
--          make claimable or to end; waiting: waiting runs that become free only by the end of another run; silent: a
--          worker has been silent for a lease, so its claims may have expired since they were last looked for (a claim
--          expires within two leases of its worker's last sign of life, and within one of its sign-off, because not all
--          may be settled then); passed_over: stretches to record; calendars: changed calendars; backfills: open backfills; limited: runs that wait
--          only for limits; unapplied: changed limits to apply; ended: runs to count; now_s float8: the database's
--          clock, since 1970; job_s, scheduled_s, expires_s, held_s float8: the first times that were found, null:
--          none)
-- locks: the row of the term, once a second
WITH seen AS (
    UPDATE pgsched.leader SET seen_at = clock_timestamp(),
        steady_since = CASE WHEN seen_at > clock_timestamp() - interval '3 seconds' OR seen_at > clock_timestamp() - (
            SELECT min(w.lease) / 2 FROM pgsched.workers w
            WHERE w.stopped_at IS NULL AND w.seen_at > clock_timestamp() - interval '1 day') THEN steady_since
            ELSE clock_timestamp() END
    -- a clock that was moved back must not make a leader look alive that is not
    WHERE term = %(term)s AND (seen_at < clock_timestamp() - interval '1 second' OR seen_at > clock_timestamp())
      AND term = (SELECT max(term) FROM pgsched.leader)
), next AS MATERIALIZED (
    SELECT clock_timestamp() AS now,
        (SELECT min(next_run_at) FROM pgsched.jobs
         WHERE NOT paused AND next_run_at >= to_timestamp(%(jobs_s)s::float8)
           AND id <> ALL (%(aside)s::text::bigint[])) AS first_job_at,
        (SELECT min(available_at) FROM pgsched.runs
         WHERE phase = 1 /* scheduled */ AND available_at >= to_timestamp(%(scheduled_s)s::float8)) AS scheduled_at,
        -- also runs that have started: runs_expire removes their bound, so that each is found once
        (SELECT min(expires_at) FROM pgsched.runs
         WHERE phase < 3 /* open */ AND state <> 'running' AND expires_at >= to_timestamp(%(expires_s)s::float8)) AS expires_at,
        (SELECT min(held_until) FROM pgsched.runs
         WHERE phase = 0 /* waiting */ AND started_at IS NULL AND held_until >= to_timestamp(%(held_s)s::float8)) AS held_until,
        (SELECT available_at FROM pgsched.runs
         -- the clock is read once, as a bound of the scan: runs that have waited longer are not read in every round
         WHERE phase = 0 /* waiting */ AND ready_at IS NULL AND available_at > (SELECT clock_timestamp())
         -- not min(): PostgreSQL 15 would not use the index for it
         ORDER BY available_at LIMIT 1) AS start_at
), due AS (
    SELECT next.*, first_job_at - make_interval(secs => %(lead_s)s) AS job_at,
        least(scheduled_at, expires_at, held_until) AS run_at FROM next
)
SELECT CASE WHEN coalesce(job_at, run_at, start_at) IS NOT NULL THEN
        greatest(0, extract(epoch FROM least(job_at, run_at, start_at) - now))::float8 END AS wait_s,
    coalesce(job_at <= now, false) AS jobs, coalesce(run_at <= now, false) AS runs,
    EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL) AS waiting,
    EXISTS (SELECT FROM pgsched.workers WHERE stopped_at IS NULL AND seen_at < clock_timestamp() - lease
            AND seen_at > to_timestamp(%(searched_s)s::float8) - 2 * lease)
        OR EXISTS (SELECT FROM pgsched.workers WHERE seen_at < clock_timestamp() - lease
            AND seen_at > to_timestamp(%(searched_s)s::float8) - lease
            -- a worker stops after it was last seen: so only workers that stopped lately have to be read
            AND stopped_at > to_timestamp(%(searched_s)s::float8) - greatest(interval '10 minutes', (
                SELECT max(lease) FROM pgsched.workers WHERE stopped_at IS NULL))) AS silent,
    EXISTS (SELECT FROM pgsched.passed_over) AS passed_over, EXISTS (SELECT FROM pgsched.calendars WHERE replan) AS calendars,
    EXISTS (SELECT FROM pgsched.backfills WHERE finished_at IS NULL) AS backfills,
    EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL) AS limited,
    EXISTS (SELECT FROM pgsched.queues WHERE applied_at IS NULL)
        OR EXISTS (SELECT FROM pgsched.limits WHERE applied_at IS NULL) AS unapplied,
    CASE WHEN %(count)s THEN EXISTS (
        SELECT FROM pgsched.runs WHERE phase >= 3 /* ended */ AND finished_at > (SELECT counted_until
            FROM pgsched.rollup_mark))
        ELSE false END AS ended,
    extract(epoch FROM now)::float8 AS now_s, extract(epoch FROM first_job_at)::float8 AS job_s,
    extract(epoch FROM scheduled_at)::float8 AS scheduled_s, extract(epoch FROM expires_at)::float8 AS expires_s,
    extract(epoch FROM held_until)::float8 AS held_s
FROM due


-- name: leader_look_below
-- find what leader_look does not see because it lies below its lower bounds: it has been due for long, and became
-- visible late.
-- params: low_s float8, high_s float8 (since 1970: from low_s to just before high_s)
-- returns: (job_s, scheduled_s, expires_s, held_s float8: the first times that were found, null: none)
-- locks: none
SELECT extract(epoch FROM (SELECT min(next_run_at) FROM pgsched.jobs WHERE NOT paused
        AND next_run_at >= to_timestamp(%(low_s)s::float8) AND next_run_at < to_timestamp(%(high_s)s::float8)))::float8 AS job_s,
    extract(epoch FROM (SELECT min(available_at) FROM pgsched.runs WHERE phase = 1 /* scheduled */
        AND available_at >= to_timestamp(%(low_s)s::float8) AND available_at < to_timestamp(%(high_s)s::float8)))::float8
        AS scheduled_s,
    extract(epoch FROM (SELECT min(expires_at) FROM pgsched.runs WHERE phase < 3 /* open */ AND state <> 'running'
        AND expires_at >= to_timestamp(%(low_s)s::float8) AND expires_at < to_timestamp(%(high_s)s::float8)))::float8
        AS expires_s,
    extract(epoch FROM (SELECT min(held_until) FROM pgsched.runs WHERE phase = 0 /* waiting */ AND started_at IS NULL
        AND held_until >= to_timestamp(%(low_s)s::float8) AND held_until < to_timestamp(%(high_s)s::float8)))::float8 AS held_s


-- name: leader_resign
-- release the session lock if this session holds it, and wake the candidates.
-- params: locked boolean
-- returns: nothing of interest
-- locks: releases the advisory lock
SELECT CASE WHEN %(locked)s THEN pg_advisory_unlock(hashtextextended('pgsched.leader', 0::bigint)) END,
    pgsched.notify('pgsched_election', 'resigned')


-- name: leader_seen
-- record that this term is alive, or that its leader resigns.
-- params: term bigint, resign boolean
-- returns: nothing
-- locks: that row
UPDATE pgsched.leader SET seen_at = clock_timestamp(),
    resigned_at = CASE WHEN %(resign)s THEN clock_timestamp() ELSE resigned_at END
WHERE term = %(term)s


-- name: leader_term
-- return the newest term: the second statement of every leader transaction. It is a statement of its own, because its
-- snapshot must be younger than the lock of leader_fence.
-- params: fleet uuid (the database must belong to it; null: any)
-- returns: (term bigint, null: there was no leader ever; fleet uuid: the database's)
-- locks: none
SELECT max(term) AS term, pgsched.assert_fleet(%(fleet)s::uuid) AS fleet FROM pgsched.leader


-- name: leader_try
-- stand for leader: try to take a session lock without waiting, because a waiting statement would hold a snapshot.
-- params: none; the key is derived from the schema's name
-- returns: (led boolean: this session holds the lock now, standby boolean)
-- locks: advisory, session level
SELECT CASE WHEN pg_is_in_recovery() THEN false
       ELSE pg_try_advisory_lock(hashtextextended('pgsched.leader', 0::bigint)) END AS led, pg_is_in_recovery() AS standby


-- name: leader_sleeps
-- announce that the leader looks again after this many seconds. Transactions that make something due earlier notify it.
-- params: seconds float8
-- returns: nothing
-- locks: none
SELECT pgsched.leader_sleeps(%(seconds)s)


-- name: leader_unlock
-- release the session lock, and wake no candidate: the leader goes on without it.
-- params: none
-- returns: nothing of interest
-- locks: releases the advisory lock
SELECT pg_advisory_unlock(hashtextextended('pgsched.leader', 0::bigint))


-- name: leader_vacant
-- check whether a candidate may begin a term; asked again after leader_fence. Getting the session lock means that a
-- leader who held it is gone. A term that was begun without the lock has ended when it resigned, or was not seen for
-- gone_s. A term seen in the future was seen before the clock went back (a failover), and is not waited for. If it is
-- alive, the new term and leader_fence end it.
-- params: gone_s float8 (a term that was not seen for this long has ended), locked boolean (this session has the lock)
-- returns: vacant boolean
-- locks: none
SELECT NOT pg_is_in_recovery() AND NOT EXISTS (
    SELECT FROM pgsched.leader WHERE term = (SELECT max(term) FROM pgsched.leader) AND resigned_at IS NULL
      AND NOT (by_lock AND %(locked)s)
      AND seen_at > clock_timestamp() - make_interval(secs => %(gone_s)s)
      AND seen_at < clock_timestamp() + interval '2 seconds') AS vacant


-- name: notifications_clear
-- make the server remove notifications that all sessions have read from its queue. The server does this only when a
-- session notifies, or runs this statement.
-- params: none
-- returns: usage float8, 0 to 1
-- locks: none
SELECT pg_notification_queue_usage()::float8 AS usage


-- name: set_aside_all
-- return the rows that the leader's duties leave out for a while, and the duties that fail.
-- params: none
-- returns: (duty, row_id (empty: the whole duty; 'session': it cost the leader its session), error, tries, in_s float8:
--          seconds until the next try)
-- locks: none
SELECT duty, row_id, error, tries, extract(epoch FROM next_at - clock_timestamp())::float8 AS in_s FROM pgsched.set_aside


-- name: set_aside_drop
-- end the exclusion of rows that a duty has processed again.
-- params: duty text, row_ids text[]
-- returns: nothing
-- locks: those rows
DELETE FROM pgsched.set_aside WHERE duty = %(duty)s::text AND row_id = ANY (%(row_ids)s::text[])


-- name: set_aside_note
-- leave out rows for a while that a duty failed with.
-- params: duty text, parallel arrays row_ids text[], errors text[], ins_s float8[] (seconds until the next try of
--         each); no row twice
-- returns: (row_id, tries integer: how many times in a row it has been left out)
-- locks: the rows
INSERT INTO pgsched.set_aside AS s (duty, row_id, error, next_at)
SELECT %(duty)s::text, g.row_id, g.error, clock_timestamp() + make_interval(secs => g.in_s)
FROM unnest(%(row_ids)s::text[], %(errors)s::text[], %(ins_s)s::float8[]) AS g(row_id, error, in_s) ORDER BY g.row_id
ON CONFLICT (duty, row_id) DO UPDATE SET error = excluded.error, next_at = excluded.next_at, tries = s.tries + 1
RETURNING row_id, tries


-- name: set_aside_seen
-- return what is left out, for people.
-- params: none
-- returns: (duty, row_id, error, tries, for_s, in_s), at most 100, first those of whole duties
-- locks: none
SELECT duty, row_id, error, tries, extract(epoch FROM clock_timestamp() - since)::float8 AS for_s,
    extract(epoch FROM next_at - clock_timestamp())::float8 AS in_s
FROM pgsched.set_aside WHERE row_id <> 'session' OR tries > 1
ORDER BY row_id NOT IN ('', 'session'), duty, row_id LIMIT 100


-- name: set_aside_session
-- record that a leader lost its session in a duty. The cause may be the duty, the network, or a restart of the server.
-- From the second time in a row, the duty is not done for 1, 5 and 30 minutes. A leader that completes the duty removes
-- the row. A loss counts as the first in a row in two cases: the same leader had completed the duty before (it may not
-- know the row, which the former leader wrote late), or next_at is more than ten minutes ago.
-- params: duty, error text; went_through boolean
-- returns: nothing
-- locks: the row
INSERT INTO pgsched.set_aside AS s (duty, row_id, error, next_at)
VALUES (%(duty)s::text, 'session', %(error)s::text, clock_timestamp())
ON CONFLICT (duty, row_id) DO UPDATE SET error = excluded.error,
    (tries, since, next_at) = (
        SELECT n.tries, CASE n.tries WHEN 1 THEN clock_timestamp() ELSE s.since END,
            clock_timestamp() + CASE n.tries WHEN 1 THEN interval '0' WHEN 2 THEN interval '1 minute'
                                             WHEN 3 THEN interval '5 minutes' ELSE interval '30 minutes' END
        FROM (SELECT CASE WHEN %(went_through)s OR s.next_at < clock_timestamp() - interval '10 minutes' THEN 1
                          ELSE s.tries + 1 END) AS n(tries))
