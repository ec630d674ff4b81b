-- Sessions, locks and who waits for them. The functions are those of migrations/1003_recipes/60_sessions.sql, 61_locks.sql and
-- 64_lock_lists.sql.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


-- name: session_open
-- open a session, or renew the one with this token.
-- params: token uuid, ttl_s float8 (seconds), name text
-- returns: id
-- locks: the row of the session
SELECT s.id FROM pgsched.session_open(%(token)s::uuid, make_interval(secs => %(ttl_s)s::float8), %(name)s::text) s


-- name: session_renew
-- renew a session for its ttl.
-- params: token uuid
-- returns: lives (false: it has ended), losses: how often somebody else has taken a place from it
-- locks: the row of the session
SELECT s.lease_until IS NOT NULL AS lives, s.losses FROM pgsched.session_renew(%(token)s::uuid) s


-- name: session_end
-- end a session, and give back what it has.
-- params: token uuid
-- returns: left_over: how many places it still has; null: there is no such session
-- locks: the row of the session, and those of up to 1,000 of its locks, in the order of their names
SELECT pgsched.session_end(%(token)s::uuid) AS left_over


-- name: session_leases
-- ask which of these places a session still has, and which are granted; serve the lines whose holders may have gone.
-- params: session uuid, tokens uuid[] (at most 1,000)
-- returns: (token, fence: null while it waits, look_in_s: seconds until it is to be asked again; null: not the first in line)
-- locks: the rows of locks whose first contender is asked for, in the order of their names
SELECT l.token, l.fence, extract(epoch FROM l.look_at - clock_timestamp())::float8 AS look_in_s
FROM pgsched.session_leases(%(session)s::uuid, %(tokens)s::text::uuid[]) l


-- name: lock_acquire
-- ask for a lock with a token; asked again, the answer is the same.
-- params: name text, token uuid, session uuid, wait_s float8 (seconds; null: as long as the session lives), mode text,
--         capacity int (null: no semaphore), note text, kind text (lock or election)
-- returns: fence (null: not granted), place (null: not in line), look_in_s: as in session_leases
-- locks: the row of the lock
SELECT a.fence, a.place, extract(epoch FROM a.look_at - clock_timestamp())::float8 AS look_in_s
FROM pgsched.lock_acquire(%(name)s::text, %(token)s::uuid, wait => make_interval(secs => %(wait_s)s::float8), mode => %(mode)s::text,
    capacity => %(capacity)s::int, note => %(note)s::text, session => %(session)s::uuid, kind => %(kind)s::text) a


-- name: lock_release
-- give a lock back, or leave its line.
-- params: name text, token uuid
-- returns: released (false: the token had no place any more)
-- locks: the row of the lock
SELECT pgsched.lock_release(%(name)s::text, %(token)s::uuid) AS released


-- name: lock_assert
-- fail unless this grant is held now, and keep it from being given on until the transaction ends.
-- params: name text, fence bigint
-- returns: held
-- locks: the row of the grant, FOR KEY SHARE
SELECT pgsched.assert_lock(%(name)s::text, %(fence)s::bigint)::text AS held


-- name: lock_break
-- take a lock from its holders, or from the one with this fence.
-- params: name text, fence bigint (null: from all)
-- returns: broken: how many held it
-- locks: the row of the lock
SELECT pgsched.lock_break(%(name)s::text, %(fence)s::bigint) AS broken


-- name: lock_line
-- list who holds a lock and who waits for it, in their order.
-- params: name text, most int
-- returns: (fence: null for who waits, mode, session, owner, note, since, granted_at, lease_until)
-- locks: none
SELECT l.fence, l.mode, l.session, l.owner::text AS owner, l.note, l.since, l.granted_at, l.lease_until
FROM pgsched.lock_line(%(name)s::text, %(most)s::int) WITH ORDINALITY l ORDER BY l.ordinality


-- name: lock_list
-- list locks that this role may see, in the order of their names.
-- params: prefix text, after text (names behind this one), most int, only_used bool (only those in use), kind text (null: any)
-- returns: (name, owner, kind: lock or election, capacity: of a semaphore, holders, waiting, holder: session of the oldest grant,
--          fence and held_since of that grant, lease_until of that session, waiting_since: of the first that waits, used_at, now)
-- locks: none
SELECT l.name, l.owner::text AS owner, l.kind_of AS kind, l.capacity, l.holders, l.waiting, l.holder, l.fence, l.held_since,
    l.lease_until, l.waiting_since, l.used_at, clock_timestamp() AS now
FROM pgsched.lock_list(%(prefix)s::text, %(after)s::text, %(most)s::int, %(only_used)s::bool, %(kind)s::text) WITH ORDINALITY l
ORDER BY l.ordinality


-- name: sessions_over
-- find sessions that were not renewed, or were ended and have something left.
-- params: after bigint: only ids behind this one; n int: at most so many; aside bigint[]: ids that are skipped
-- returns: over bigint[]: their ids in ascending order; some: there are sessions at all
-- locks: none
SELECT ARRAY(
    SELECT s.id FROM pgsched.sessions s
    WHERE s.id > %(after)s AND (s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp()) AND s.id <> ALL (%(aside)s::bigint[])
    ORDER BY s.id LIMIT %(n)s
) AS over, EXISTS (SELECT FROM pgsched.sessions) AS some


-- name: sessions_ended
-- end those of these sessions that are over, and give on what they had: at most 1,000 locks and 1,000 keys.
-- params: ids bigint[]
-- returns: ended: how many it has dealt with
-- locks: those sessions, the rows of their locks and of the roots of their keys, skipping locked ones
SELECT pgsched.sweep_sessions(cardinality(%(ids)s::bigint[]), ids => %(ids)s::bigint[]) AS ended


-- name: locks_pruned
-- delete names of locks that nobody has used for 30 days, of the next so many names.
-- params: after text, n int
-- returns: after: the last name that was read; null: it was the last of all
-- locks: the rows of those locks, skipping locked ones
SELECT pgsched.prune_locks(%(after)s::text, %(n)s::int) AS after


-- name: store_roots_pruned
-- delete roots of the store that have no keys and were not changed for 30 days, of the next so many roots.
-- params: after text, n int
-- returns: after: the last root that was read; null: it was the last of all
-- locks: those rows, skipping locked ones
SELECT pgsched.prune_roots(%(after)s::text, %(n)s::int) AS after
