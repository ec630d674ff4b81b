-- The store as a tree of nodes. The functions are those of migrations/1003_recipes/65_nodes.sql.
-- Each block is one statement: its purpose, params, returns and locks, then its text.


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
