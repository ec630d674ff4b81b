-- Sessions, locks and who waits for them. The functions are those of migrations/1003_recipes/60_sessions.sql and 61_locks.sql.
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
-- returns: lives (false: it has ended), newest_loss: the newest grant that somebody has taken from it (null: none)
-- locks: the row of the session
SELECT s.lease_until IS NOT NULL AS lives, s.newest_loss FROM pgsched.session_renew(%(token)s::uuid) s


-- name: session_end
-- end a session, and give back what it has.
-- params: token uuid
-- returns: left_over: how many places and keys it still has; null: there is no such session
-- locks: the row of the session, and those of up to 1,000 of its locks, skipping locked ones
SELECT pgsched.session_end(%(token)s::uuid) AS left_over


-- name: session_leases
-- ask which of these places a session still has, and which are granted; serve the lines whose holders may have gone.
-- params: session uuid, tokens uuid[] (at most 1,000), positions bool: say where in line those are that are not the first
-- returns: (token, fence: null while it waits, look_in_s: seconds until it is to be asked again; null: not the first in line,
--          position: the place in line, at most 100; null: not asked for)
-- locks: the rows of locks whose first contender is asked for, skipping locked ones
SELECT l.token, l.fence, extract(epoch FROM l.look_at - clock_timestamp())::float8 AS look_in_s, l.position
FROM pgsched.session_leases(%(session)s::uuid, %(tokens)s::text::uuid[], %(positions)s::bool) l


-- name: lock_acquire
-- ask for a lock with a token; asked again, the answer is the same.
-- params: name text, token uuid, session uuid, wait_s float8 (seconds; null: as long as the session lives), mode text,
--         capacity int (null: no semaphore), note text
-- returns: fence (null: not granted), place (null: not in line), look_in_s: as in session_leases
-- locks: the row of the lock
SELECT a.fence, a.place, extract(epoch FROM a.look_at - clock_timestamp())::float8 AS look_in_s
FROM pgsched.lock_acquire(%(name)s::text, %(token)s::uuid, wait => make_interval(secs => %(wait_s)s::float8), mode => %(mode)s::text,
    capacity => %(capacity)s::int, note => %(note)s::text, session => %(session)s::uuid) a


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


-- name: locks_swept
-- end sessions that were not renewed, and give on what they had.
-- params: most int
-- returns: ended: how many it has dealt with
-- locks: those sessions and the rows of their locks, skipping locked ones
SELECT pgsched.sweep_sessions(%(most)s::int) AS ended
