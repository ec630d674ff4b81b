-- The store of values and what is built on it: counters, watches, double barriers. The functions are those of
-- migrations/1003_recipes/62_store.sql and 63_barriers.sql.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


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
