-- Small values that programs share: each with a version, kept, or bound to a session and gone with it. Keys are paths; the
-- first element of a path is its root. All changes under a root follow one another, and each has the next version of the root:
-- who has seen version 7 has seen all changes up to 7.

-- The highest version that a deleted root had: a new root begins with it. It is never reset.
CREATE SEQUENCE pgsched.store_versions MINVALUE 0;

-- A new root is told of for a minute, because who watched it before had no row to mark.
CREATE TABLE pgsched.store_roots (
    root          text COLLATE "C" PRIMARY KEY,
    owner         name NOT NULL,
    version       bigint NOT NULL DEFAULT 0,
    kept_after    bigint NOT NULL DEFAULT 0,
    keys          bigint NOT NULL DEFAULT 0,
    look_at       timestamptz,
    watched_until timestamptz NOT NULL DEFAULT clock_timestamp() + interval '1 min',
    changed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    number        bigint GENERATED ALWAYS AS IDENTITY
) WITH (fillfactor = 50);
CREATE INDEX store_roots_of_owner ON pgsched.store_roots (owner);

CREATE TABLE pgsched.store (
    key        text COLLATE "C" PRIMARY KEY,
    root       text COLLATE "C" NOT NULL REFERENCES pgsched.store_roots,
    value      jsonb NOT NULL,
    version    bigint NOT NULL,
    revision   bigint NOT NULL,
    session    bigint REFERENCES pgsched.sessions,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70);
CREATE INDEX store_of_session ON pgsched.store (session) WHERE session IS NOT NULL;
CREATE INDEX store_of_root ON pgsched.store (root);
CREATE INDEX store_bound ON pgsched.store (root, session) WHERE session IS NOT NULL;

CREATE TABLE pgsched.store_changes (
    root       text COLLATE "C" NOT NULL REFERENCES pgsched.store_roots ON DELETE CASCADE,
    version    bigint NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      jsonb,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (root, version)
);

COMMENT ON SEQUENCE pgsched.store_versions IS 'The highest version that a deleted root had. Never reset.';
COMMENT ON SEQUENCE pgsched.store_roots_number_seq IS 'Of the column number in pgsched.store_roots.';
COMMENT ON TABLE pgsched.store_roots IS 'First elements of the keys in pgsched.store; changes under one of them follow one another.';
COMMENT ON COLUMN pgsched.store_roots.owner IS 'The role that used the root first.';
COMMENT ON COLUMN pgsched.store_roots.version IS 'The version of the last change under this root.';
COMMENT ON COLUMN pgsched.store_roots.kept_after IS 'Changes up to this version are not kept any more.';
COMMENT ON COLUMN pgsched.store_roots.keys IS 'How many keys there are under this root.';
COMMENT ON COLUMN pgsched.store_roots.look_at IS 'Before this time no session ends, unless it is ended, to which keys under this root are bound.';
COMMENT ON COLUMN pgsched.store_roots.watched_until IS 'Changes are notified until this time: somebody watches the root.';
COMMENT ON COLUMN pgsched.store_roots.changed_at IS 'When a key was last changed. A root without keys is deleted after 30 days.';
COMMENT ON COLUMN pgsched.store_roots.number IS 'It rises with each root that anybody adds: see pgsched.role_room.';
COMMENT ON TABLE pgsched.store IS 'Small values that programs share.';
COMMENT ON COLUMN pgsched.store.version IS 'The version of its root when the value was last changed.';
COMMENT ON COLUMN pgsched.store.revision IS 'How often the key was written, from 1.';
COMMENT ON COLUMN pgsched.store.session IS 'The key goes with this session. NULL: it stays.';
COMMENT ON TABLE pgsched.store_changes IS 'The last changes under each root, for those who watch it.';
COMMENT ON COLUMN pgsched.store_changes.value IS 'The value that was written. NULL: the key was deleted.';
