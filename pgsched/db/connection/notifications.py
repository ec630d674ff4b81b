"""Read notifications from a connection that has no other use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pgsched.db.connection.connect import AsyncConnection, Connection


def arrived_notifications(conn: Connection[Any] | AsyncConnection[Any]) -> Iterator[tuple[str, str]]:
    """Yield (channel, payload) of each notification that has arrived.

    Raises OperationalError when the connection is lost.
    """
    conn.pgconn.consume_input()
    while (one := conn.pgconn.notifies()) is not None:
        yield one.relname.decode(), one.extra.decode(errors="replace")
