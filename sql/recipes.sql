-- Sessions, locks, the store and its barriers, item queues and nodes: statements that call the functions of migrations/1003_recipes.
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
-- returns: lives (false: it has ended), losses: how many grants somebody has taken from it
-- locks: the row of the session
SELECT s.lease_until IS NOT NULL AS lives, s.losses FROM pgsched.session_renew(%(token)s::uuid) s


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
-- params: name text, most int, note_length int (characters of each note)
-- returns: (fence: null for who waits, mode, session, owner, note, since, granted_at, lease_until)
-- locks: none
SELECT l.fence, l.mode, l.session, l.owner::text AS owner, left(l.note, %(note_length)s::int) AS note, l.since, l.granted_at, l.lease_until
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


-- name: store_get
-- read the value of a key.
-- params: key text
-- returns: (key, value: its JSON text, version, revision, changed_at, bound), or no row
-- locks: none
SELECT %(key)s::text AS key, k.value::text AS value, k.version, k.revision, k.changed_at, k.bound
FROM pgsched.kv_get(%(key)s::text) k WHERE k.version IS NOT NULL


-- name: store_put
-- write a key.
-- params: key text, value text (JSON), expected bigint (null: whatever its version is), session uuid (null: the key stays)
-- returns: version (null: not written, because the key has another version)
-- locks: the row of the root
SELECT pgsched.kv_put(%(key)s::text, %(value)s::text::jsonb, %(expected)s::bigint, %(session)s::text::uuid) AS version


-- name: store_delete
-- delete a key.
-- params: key text, expected bigint (null: whatever its version is)
-- returns: version of this change (null: not deleted)
-- locks: the row of the root
SELECT pgsched.kv_delete(%(key)s::text, %(expected)s::bigint) AS version


-- name: store_add
-- add to a number; a key that does not exist counts as 0.
-- params: key text, amount text (a number)
-- returns: total: the sum, as text
-- locks: the row of the root
SELECT pgsched.kv_add(%(key)s::text, %(amount)s::text::numeric)::text AS total


-- name: store_list
-- list the keys with a prefix, in their order.
-- params: prefix text, after text (a key; empty: from the first), most int (at most 1,000)
-- returns: (key, value: its JSON text, version, revision, changed_at, bound)
-- locks: none
SELECT k.key, k.value::text AS value, k.version, k.revision, k.changed_at, k.bound
FROM pgsched.kv_list(%(prefix)s::text, %(after)s::text, %(most)s::int) WITH ORDINALITY k ORDER BY k.ordinality


-- name: store_keys
-- list the names of the keys with a prefix, in their order.
-- params: prefix text, after text (a key; empty: from the first), most int (at most 1,000)
-- returns: key
-- locks: none
SELECT k.key FROM pgsched.kv_list(%(prefix)s::text, %(after)s::text, %(most)s::int) WITH ORDINALITY k ORDER BY k.ordinality


-- name: store_changes
-- read the changes of keys with a prefix, in their order.
-- params: prefix text, since bigint (null: none, only the present version)
-- returns: (upto: the version that has been read, skipped: changes are missing, look_in_s: seconds until it is to be asked again,
--          channel: of the notifications, version, key: null if there is no such change, value: JSON text, null: deleted,
--          changed_at)
-- locks: the row of the root, for those who may write, unless somebody has locked it
SELECT c.upto, c.skipped, extract(epoch FROM c.look_at - clock_timestamp())::float8 AS look_in_s,
    pgsched.store_channel(pgsched.store_root(%(prefix)s::text)) AS channel, c.version, c.key, c.value::text AS value, c.changed_at
FROM pgsched.kv_changes(%(prefix)s::text, %(since)s::bigint) c ORDER BY c.version


-- name: barrier_enter
-- enter a double barrier with a token; asked again, it says how it stands.
-- params: name text, token uuid, size int, session uuid, note text (JSON)
-- returns: (round: null: not inside, open)
-- locks: the row of the root
SELECT b.round, b.open
FROM pgsched.barrier_enter(%(name)s::text, %(token)s::uuid, %(size)s::int, %(session)s::uuid, %(note)s::text::jsonb) b


-- name: barrier_leave
-- leave a double barrier.
-- params: name text, token uuid, round bigint
-- returns: over: all members of that round have left
-- locks: the row of the root
SELECT pgsched.barrier_leave(%(name)s::text, %(token)s::uuid, %(round)s::bigint) AS over


-- name: barrier_withdraw
-- give up waiting for a double barrier to open.
-- params: name text, token uuid
-- returns: withdrawn (false: it has opened, with this member inside)
-- locks: the row of the root
SELECT pgsched.barrier_withdraw(%(name)s::text, %(token)s::uuid) AS withdrawn


-- name: item_put
-- put one item into a queue.
-- params: name text, item text (JSON), priority int (0 to 999, the lowest first), delay_s float8 (seconds)
-- returns: id
-- locks: none
SELECT pgsched.item_put(%(name)s::text, %(item)s::text::jsonb, %(priority)s::int, make_interval(secs => %(delay_s)s::float8)) AS id


-- name: item_put_many
-- put items into a queue, in their order.
-- params: name text, items text (a JSON array), priority int, delay_s float8, as item_put
-- returns: ids bigint[], in that order
-- locks: none
SELECT pgsched.item_put_many(%(name)s::text, ARRAY(
    SELECT i.item FROM jsonb_array_elements(%(items)s::text::jsonb) WITH ORDINALITY i(item, n) ORDER BY i.n),
    %(priority)s::int, make_interval(secs => %(delay_s)s::float8)) AS ids


-- name: item_get
-- get the first items of a queue; with the same token, the answer is the same.
-- params: name text, token uuid, session uuid, most int, max_attempts int (0: no limit), wait boolean (the session is told of
--         the next item, if there is none)
-- returns: (id, value, priority, attempt, put_at, look_in_s: null); if there is none, one row without an id. Its look_in_s
--          says in how many seconds to ask again, for the session that has waited longest; null for the others
-- locks: the items; the row of the session in item_consumers, FOR KEY SHARE. About once a second also the row of the queue and
--        what is held by sessions that have ended. It skips locked rows
SELECT i.id, i.value, i.priority, i.attempt, i.put_at, extract(epoch FROM i.look_at - clock_timestamp())::float8 AS look_in_s
FROM pgsched.item_get(%(name)s::text, %(token)s::uuid, %(session)s::uuid, most => %(most)s::int, max_attempts => %(max_attempts)s::int,
    wait => %(wait)s::boolean) i


-- name: item_consume
-- delete items that their holder has done, each with the token by which it was got.
-- params: ids bigint[], tokens uuid[], session uuid (of the holder: to ask again is harmless)
-- returns: id, one row for each that was held
-- locks: those items
SELECT unnest(pgsched.item_consume_many(%(ids)s::text::bigint[], %(tokens)s::text::uuid[], %(session)s::uuid)) AS id


-- name: item_give_back
-- put an item that the caller holds back into the line.
-- params: id bigint, token uuid, delay_s float8 (seconds, until it may be got), error text (null: it does not count as an attempt)
-- returns: done (false: it was not held any more)
-- locks: that item
SELECT pgsched.item_give_back(%(id)s::bigint, %(token)s::uuid, make_interval(secs => %(delay_s)s::float8), %(error)s::text) AS done


-- name: item_extend
-- renew the session that holds an item.
-- params: id bigint, token uuid
-- returns: held (false: it is not held any more)
-- locks: the row of the session
SELECT pgsched.item_extend(%(id)s::bigint, %(token)s::uuid) IS NOT NULL AS held


-- name: item_leave
-- wait for items no more, and give back what was got with this token.
-- params: name text, token uuid, session uuid
-- returns: nothing_left
-- locks: the row of the session in item_consumers, and those items
SELECT pgsched.item_leave(%(name)s::text, %(token)s::uuid, %(session)s::uuid)::text AS nothing_left


-- name: item_counts
-- count the items of a queue.
-- params: name text
-- returns: (ready: may be got now, later: may be got later, taken: held by consumers)
-- locks: none
SELECT c.ready, c.later, c.taken FROM pgsched.item_counts(%(name)s::text) c


-- name: node_read
-- read a node, and what is known of it.
-- params: key text, listed bool (name its children)
-- returns: (upto: the version of its root, found, value: JSON text, version: from 0, made_at, changed_in: versions of its root,
--          created_ms, changed_ms: milliseconds since 1970, session: the id of the one it goes with, children_made, children,
--          child_count)
-- locks: none
SELECT n.upto, n.is_there AS found, n.value::text AS value, n.version, n.made_at, n.changed_in,
    floor(extract(epoch FROM n.created_at) * 1000)::bigint AS created_ms,
    floor(extract(epoch FROM n.changed_at) * 1000)::bigint AS changed_ms,
    n.session, n.children_made, n.children, n.child_count
FROM pgsched.node_read(%(key)s::text, %(listed)s::bool) n


-- name: node_roots
-- list the first elements of the keys that the caller may use.
-- params: none
-- returns: names
-- locks: none
SELECT pgsched.node_roots() AS names


-- name: node_create
-- make a node.
-- params: parent text (null: none), name text, value text (JSON), session uuid (null: it stays), sequence bool, makepath bool
-- returns: (problem: null: it was made, key)
-- locks: the row of the root
SELECT n.problem, n.key FROM pgsched.node_create(%(parent)s::text, %(name)s::text, %(value)s::text::jsonb, %(session)s::text::uuid,
    %(sequence)s::bool, %(makepath)s::bool) n


-- name: node_set
-- set the value of a node, and read it.
-- params: key text, value text (JSON), expected bigint (null: whatever its version is)
-- returns: (problem: null: it was set, and as for node_read without names)
-- locks: the row of the root
SELECT s.problem, n.upto, n.is_there AS found, n.value::text AS value, n.version, n.made_at, n.changed_in,
    floor(extract(epoch FROM n.created_at) * 1000)::bigint AS created_ms,
    floor(extract(epoch FROM n.changed_at) * 1000)::bigint AS changed_ms,
    n.session, n.children_made, n.children, n.child_count
FROM pgsched.node_set(%(key)s::text, %(value)s::text::jsonb, %(expected)s::bigint) AS s(problem)
LEFT JOIN LATERAL pgsched.node_read(%(key)s::text) n ON s.problem IS NULL


-- name: node_delete
-- delete a node that has no children.
-- params: key text, expected bigint (null: whatever its version is)
-- returns: problem (null: it was deleted)
-- locks: the row of the root
SELECT pgsched.node_delete(%(key)s::text, %(expected)s::bigint) AS problem


-- name: node_prune
-- delete a node and all below it, at most 1,000 of them.
-- params: key text
-- returns: deleted: how many
-- locks: the row of the root
SELECT pgsched.node_prune(%(key)s::text) AS deleted
