"""Two durable commits by psycopg for each acquire and release: each writes one small row, and nothing else.

What any lock that is stored in PostgreSQL costs at least, if its grant and its release are each on disk.
"""

from __future__ import annotations

import psycopg

from bench.peers.recipes.verbs import Coordinator, Lock, main
from bench.peers.record import dsn

TABLE = "CREATE TABLE IF NOT EXISTS held (name text PRIMARY KEY, fence bigint NOT NULL) WITH (fillfactor = 50)"


class Row(Lock):
    """A row that counts its grants."""

    def __init__(self, conn: psycopg.Connection, name: str) -> None:
        self.conn, self.name = conn, name
        conn.execute("INSERT INTO held VALUES (%s, 0)", [name])

    def acquire(self) -> int:
        return self._write(1)

    def release(self) -> None:
        self._write(0)

    def _write(self, more: int) -> int:
        statement = "UPDATE held SET fence = fence + %s WHERE name = %s RETURNING fence"
        found = self.conn.execute(statement, [more, self.name]).fetchone()
        assert found is not None
        return int(found[0])


class Commits(Coordinator):
    """Commits."""

    def open(self) -> None:
        self.conn = psycopg.connect(dsn(), autocommit=True)
        with self.conn.transaction():
            self.conn.execute("SELECT pg_advisory_xact_lock(1)")  # two processes cannot create one table at a time
            self.conn.execute(TABLE)

    def lock(self, name: str) -> Lock:
        return Row(self.conn, name)

    def close(self) -> None:
        self.conn.close()


if __name__ == "__main__":
    main(Commits())
