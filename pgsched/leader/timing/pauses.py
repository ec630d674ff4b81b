"""Pauses of one thread that end early: by a stop, from any thread or a signal handler, or by a notification."""

from __future__ import annotations

import os
import select
import threading
import time
import weakref
from typing import Any

from pgsched.db.connection.connect import Connection


class Pauses:
    """The pauses of one thread.

    `answered_at`: monotonic instant at which the database last answered, None before the first time.
    """

    def __init__(self) -> None:
        self.answered_at: float | None = None
        self._stop = threading.Event()
        # written from a signal handler: an Event's wait could be interrupted by the handler that sets the event
        self._wake_read, self._wake_write = os.pipe()
        weakref.finalize(self, os.close, self._wake_read)
        weakref.finalize(self, os.close, self._wake_write)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End the pause under way, and let no other begin."""
        self._stop.set()
        os.write(self._wake_write, b"x")

    def pause(self, conn: Connection[Any] | None, seconds: float, deaf_s: float = 0.0) -> bool:
        """Wait for a notification on `conn`, a stop, or `seconds`; return whether a notification came.

        Notifications are ignored for the first `deaf_s` seconds.
        """
        if conn is not None:
            self.answered_at = time.monotonic()
        if self.stopped or seconds <= 0:
            return False
        if deaf_s > 0:
            self.pause(None, min(deaf_s, seconds))
            return self.pause(conn, seconds - deaf_s)
        # a notification may have come with the answer to a statement: then the socket has nothing left to read
        if conn is not None and list(conn.notifies(timeout=0)):
            return True
        ready = select.poll()  # not select(): a worker with many children has descriptors beyond 1023
        ready.register(self._wake_read, select.POLLIN)
        if conn is not None:
            ready.register(conn.fileno(), select.POLLIN)
        ready.poll(seconds * 1000)
        return conn is not None and bool(list(conn.notifies(timeout=0)))
