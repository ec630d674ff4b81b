-- Item queues. The functions are those of migrations/1003_recipes/64_items.sql.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


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
-- returns: (ready: may be got now, later: may be got later, taken: are held)
-- locks: none
SELECT c.ready, c.later, c.taken FROM pgsched.item_counts(%(name)s::text) c
