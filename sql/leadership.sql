-- Who leads, and the proof of it.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: flags_rebuild
-- make anew the flags that are kept outside of transactions (migrations/1000_initial/12_worker_tables.sql). For each new
-- leader and each migration.
-- params: none
-- returns: nothing
-- locks: queues, SHARE, if nobody changes them just now
SELECT pgsched.rebuild_flags()


-- name: flags_may_rebuild
-- may this session make the flags anew? A migration that has nothing to do is no reason to refuse a worker's login.
-- params: none
-- returns: may boolean
-- locks: none
SELECT has_function_privilege('pgsched.rebuild_flags()', 'EXECUTE') AND NOT pg_is_in_recovery() AS may


-- name: leader_elect
-- begin a new term. Runs under leader_fence.
-- params: holder text, hostname text, pid int
-- returns: (term bigint, grace_s float8: the longest lease of any worker seen lately; nothing is reaped before that)
-- locks: the new row
INSERT INTO pgsched.leader (term, holder, hostname, pid)
SELECT coalesce(max(term), 0) + 1, %(holder)s, %(hostname)s, %(pid)s FROM pgsched.leader
RETURNING term, (SELECT extract(epoch FROM max(lease))::float8 FROM pgsched.workers
                 WHERE stopped_at IS NULL AND seen_at > clock_timestamp() - interval '1 day') AS grace_s


-- name: leader_fence
-- first statement of every leader transaction: one leader at a time writes, whatever sessions believe.
-- params: none
-- returns: locked boolean
-- locks: advisory, until the transaction ends
SELECT pg_try_advisory_xact_lock(hashtextextended('pgsched.leader.fence', 0)) AS locked


-- name: leader_look
-- what is there for the leader to do, and when will there be? One statement a round, so that a leader with
-- nothing to do costs next to nothing. It also says that this term is alive.
-- params: term bigint, searched_s float8 (when claims were last looked at, since 1970), count boolean (whether to look for
--         runs that are to be counted), lead_s float8 (due jobs are those due within so many seconds)
-- returns: (wait_s float8: seconds until something is due, null: nothing known; jobs, runs, waiting, silent,
--          passed_over, backfills, limited, unapplied, ended boolean: due jobs; runs to be made claimable or ended; held
--          runs that nothing but another run's end can free; a worker that has said nothing for a lease, whose claims
--          may have ended since they were looked at: a claim ends within two leases of its worker's last sign of
--          life, and within one of its sign-off (not all is settled then); stretches to record; open backfills; runs
--          that only limits hold; limits that were changed and are yet to be applied; runs to count;
--          now_s float8: the database's clock, since 1970)
-- locks: the row of the term, once a second
WITH seen AS (
    UPDATE pgsched.leader SET seen_at = clock_timestamp()
    -- a clock that was moved back must not make a leader look alive that is not
    WHERE term = %(term)s AND (seen_at < clock_timestamp() - interval '1 second' OR seen_at > clock_timestamp())
      AND term = (SELECT max(term) FROM pgsched.leader)
), next AS MATERIALIZED (
    SELECT clock_timestamp() AS now,
        (SELECT min(next_run_at) FROM pgsched.jobs WHERE NOT paused AND next_run_at IS NOT NULL)
            - make_interval(secs => %(lead_s)s) AS job_at,
        least((SELECT min(available_at) FROM pgsched.runs WHERE phase = 1 /* scheduled */),
              (SELECT min(expires_at) FROM pgsched.runs WHERE phase < 3 /* open */ AND state <> 'running'
                  AND started_at IS NULL),
              (SELECT min(held_until) FROM pgsched.runs WHERE phase = 0 /* waiting */ AND started_at IS NULL)) AS run_at,
        (SELECT available_at FROM pgsched.runs
         -- asked once: it bounds the scan, so that what waits since earlier is not read in every round
         WHERE phase = 0 /* waiting */ AND ready_at IS NULL AND available_at > (SELECT clock_timestamp())
         -- not min(): PostgreSQL 15 would not use the index for it
         ORDER BY available_at LIMIT 1) AS start_at
)
SELECT CASE WHEN coalesce(job_at, run_at, start_at) IS NOT NULL THEN
        greatest(0, extract(epoch FROM least(job_at, run_at, start_at) - now))::float8 END AS wait_s,
    coalesce(job_at <= now, false) AS jobs, coalesce(run_at <= now, false) AS runs,
    EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NULL) AS waiting,
    EXISTS (SELECT FROM pgsched.workers WHERE seen_at < clock_timestamp() - lease
            AND seen_at > to_timestamp(%(searched_s)s::float8)
                          - CASE WHEN stopped_at IS NULL THEN 2 * lease ELSE lease END) AS silent,
    EXISTS (SELECT FROM pgsched.passed_over) AS passed_over,
    EXISTS (SELECT FROM pgsched.backfills WHERE finished_at IS NULL) AS backfills,
    EXISTS (SELECT FROM pgsched.runs WHERE phase = 0 /* waiting */ AND ready_at IS NOT NULL) AS limited,
    EXISTS (SELECT FROM pgsched.queues WHERE applied_at IS NULL)
        OR EXISTS (SELECT FROM pgsched.limits WHERE applied_at IS NULL) AS unapplied,
    CASE WHEN %(count)s THEN EXISTS (
        SELECT FROM pgsched.runs WHERE phase >= 3 /* ended */ AND finished_at > (SELECT counted_until
            FROM pgsched.rollup_mark))
        ELSE false END AS ended,
    extract(epoch FROM now)::float8 AS now_s
FROM next


-- name: leader_resign
-- give the session lock back and wake the candidates.
-- params: none
-- returns: nothing of interest
-- locks: releases the advisory lock
SELECT pg_advisory_unlock(hashtextextended('pgsched.leader', 0)), pg_notify('pgsched_election', 'resigned')


-- name: leader_seen
-- say that this term is alive.
-- params: term bigint, resign boolean
-- returns: nothing
-- locks: that row
UPDATE pgsched.leader SET seen_at = clock_timestamp(),
    resigned_at = CASE WHEN %(resign)s THEN clock_timestamp() ELSE resigned_at END
WHERE term = %(term)s


-- name: leader_term
-- second statement of every leader transaction: the newest term. A statement of its own, because its
-- snapshot must be younger than the fence lock.
-- params: none
-- returns: term bigint (null: nobody ever led)
-- locks: none
SELECT max(term) AS term FROM pgsched.leader


-- name: leader_try
-- stand for leader: a session lock that nobody waits for (a waiting statement would hold a snapshot).
-- params: none; the key is derived from the schema's name
-- returns: (led boolean: this session holds the lock now, standby boolean)
-- locks: advisory, session level
SELECT CASE WHEN pg_is_in_recovery() THEN false
       ELSE pg_try_advisory_lock(hashtextextended('pgsched.leader', 0)) END AS led, pg_is_in_recovery() AS standby


-- name: leader_vacant
-- may a candidate that can hold no session lock stand for leader? Asked again behind leader_fence.
-- A term that was seen in the future was seen before the clock went back (a failover): it is not waited for. Should it be
-- alive, the new term and leader_fence end it.
-- params: gone_s float8 (a term that has not been seen for so long has ended)
-- returns: vacant boolean
-- locks: none
SELECT NOT pg_is_in_recovery() AND NOT EXISTS (
    SELECT FROM pgsched.leader WHERE term = (SELECT max(term) FROM pgsched.leader) AND resigned_at IS NULL
      AND seen_at > clock_timestamp() - make_interval(secs => %(gone_s)s)
      AND seen_at < clock_timestamp() + interval '2 seconds') AS vacant
