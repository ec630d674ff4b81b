"""What the sessions of a test's own database do. Other tests use the same server at the same time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

# Statements that count sessions. A condition may be added: f"{SESSIONS} AND query LIKE 'LISTEN%'".
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
BLOCKED = f"{SESSIONS} AND wait_event_type = 'Lock'"  # advisory locks as well

# A backend that starts is not in pg_stat_activity until it has checked whether connections are allowed; from before
# that check until it is there, it has a lock of the database (InitPostgres in PostgreSQL's postinit.c).
END = """
SELECT pg_terminate_backend(pid, 10000) FROM (
    SELECT l.pid FROM pg_locks l, pg_database d
    WHERE d.datname = %(name)s AND l.locktype = 'object' AND l.classid = 'pg_database'::regclass AND l.objid = d.oid
    UNION ALL SELECT pid FROM pg_stat_activity WHERE datname = %(name)s
) there
WHERE pid <> ALL (%(kept)s)"""


@contextmanager
def shut(maintenance: psycopg.Connection[Any], name: str, kept: Collection[int] = ()) -> Iterator[None]:
    """Let the database of this name have no session in the block, but those of the process ids `kept`.

    `maintenance`: an autocommit connection to another database of the server.
    """

    def allow(answer: str) -> None:
        words = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        maintenance.execute(words.format(sql.Identifier(name), sql.SQL(answer)))

    allow("false")
    try:
        maintenance.execute(END, {"name": name, "kept": [*kept]})
        yield
    finally:
        allow("true")
