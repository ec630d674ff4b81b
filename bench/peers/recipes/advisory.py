"""PostgreSQL's advisory locks of a session, by psycopg: nothing is stored, and nothing survives the connection."""

from __future__ import annotations

import psycopg

from bench.peers.recipes.verbs import Coordinator, Lock, main
from bench.peers.record import dsn

HELD = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid()"


class AdvisoryLock(Lock):
    """A lock, on a connection of its own: while it waits, the connection is in use."""

    def __init__(self, name: str) -> None:
        self.conn = psycopg.connect(dsn(), autocommit=True)
        self.name = name

    def acquire(self) -> int:
        self.conn.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [self.name])
        return 0

    def release(self) -> None:
        found = self.conn.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [self.name]).fetchone()
        if found != (True,):
            raise RuntimeError("it was not held")


class Advisory(Coordinator):
    """Advisory locks."""

    def open(self) -> None:
        self.conn = psycopg.connect(dsn(), autocommit=True)

    def lock(self, name: str) -> Lock:
        return AdvisoryLock(name)

    def hold(self, name: str, n: int) -> None:
        for i in range(n):
            self.conn.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [f"{name}/{i}"])

    def held(self, name: str) -> int:
        found = self.conn.execute(HELD).fetchone()
        assert found is not None
        return int(found[0])

    def close(self) -> None:
        self.conn.close()


if __name__ == "__main__":
    main(Advisory())
