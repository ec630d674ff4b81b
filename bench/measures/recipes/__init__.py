"""`recipes`: locks and queues of pgsched, beside Kazoo on ZooKeeper and beside PostgreSQL's advisory locks."""
