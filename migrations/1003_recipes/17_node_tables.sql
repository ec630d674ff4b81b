-- What the tree of nodes (recipes.kazoo) knows of a key beside its value. Keys that other recipes write have no row here.
CREATE TABLE pgsched.store_nodes (
    key      text COLLATE "C" PRIMARY KEY REFERENCES pgsched.store ON DELETE CASCADE,
    made_at  bigint NOT NULL,
    children bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

COMMENT ON TABLE pgsched.store_nodes IS 'Keys of the store that were made as nodes of a tree.';
COMMENT ON COLUMN pgsched.store_nodes.made_at IS 'The version of its root when the node was made.';
COMMENT ON COLUMN pgsched.store_nodes.children IS 'How many children were made below it: the number of the next one in a sequence.';
