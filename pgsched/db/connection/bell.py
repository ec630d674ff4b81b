"""Wake a thread that waits beside its connection: other threads ring for it, and notifications do.

Invariant: a notification is never missed, also one that came with the answer to a statement.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable
from typing import Any, NamedTuple

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.notifications import arrived_notifications

LONGEST_PAYLOAD = 40  # characters: any role may notify on any channel


class Heard(NamedTuple):
    """A notification: its channel, and the beginning of its payload."""

    channel: str
    payload: str


class Bell:
    """Wakes one thread.

    `heard`: the notifications that have come; the thread takes out what it has dealt with.
    """

    def __init__(self) -> None:
        self.heard: set[Heard] = set()
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)

    def ring(self) -> None:
        """Wake the thread now, or let its next wait end at once. Not after `close`."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._write_end, b".")

    def close(self) -> None:
        """Close the pipe: at the end of the thread, or in a child process, which has no such thread."""
        os.close(self._read_end)
        os.close(self._write_end)

    def abandon(self, conns: Iterable[Connection[Any]]) -> None:
        """Close in a child process the pipe, and the child's copies of the sockets of these connections.

        The connections stay the parent's: nothing is sent. With a copy, the server would not see the parent's end.
        """
        self.close()
        for conn in conns:
            with contextlib.suppress(DatabaseError, OSError):
                os.close(conn.fileno())

    def attach(self, conn: Connection[Any]) -> None:
        """Hear the notifications of this connection."""
        conn.add_notify_handler(lambda one: self.heard.add(Heard(one.channel, one.payload[:LONGEST_PAYLOAD])))

    def wait(self, conn: Connection[Any] | None, seconds: float) -> None:
        """Wait for a notification, for `ring`, or for so many seconds; do not wait if something is heard already.

        Raises OperationalError when the connection is lost.
        """
        if conn is not None:
            self._hear(conn)  # the socket may have nothing left to read
        if self.heard:
            return
        found = select.poll()
        found.register(self._read_end, select.POLLIN)
        if conn is not None:
            found.register(conn.fileno(), select.POLLIN)
        for descriptor, _ in found.poll(max(0.0, seconds) * 1000):
            if descriptor == self._read_end:
                os.read(self._read_end, 65536)
            elif conn is not None:
                self._hear(conn)

    def _hear(self, conn: Connection[Any]) -> None:
        self.heard.update(Heard(name, payload[:LONGEST_PAYLOAD]) for name, payload in arrived_notifications(conn))
