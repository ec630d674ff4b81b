"""The places of a pool of connections: idle connections, lent ones, and the callers that wait for one.

Invariant: there are at most `size` connections, idle and lent together, and who waits longest is served first.

Nothing here opens, uses or closes a connection, and nothing here is thread-safe: both belong to the pools.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Generic, Protocol, TypeVar

from pgsched.errors import DatabaseUnreachable, PgschedError

IDLE_S = 60.0  # a connection that was idle for so long is closed
PATIENCE_S = 30.0  # how long a caller waits without that any connection is given back
Conn = TypeVar("Conn")
Conn_contra = TypeVar("Conn_contra", contravariant=True)


class Waiter(Protocol[Conn_contra]):
    """A caller that waits for a place."""

    def deliver(self, conn: Conn_contra | None, error: PgschedError | None) -> None:
        """Give the caller a place, with an idle connection or None, or the error to raise instead."""


class Places(Generic[Conn]):
    """The places of one process, until the pool is closed.

    `idle`: connections with the time since when they are idle, on the monotonic clock; the oldest comes first.
    `lent`: how many places are taken.
    `opened`: how many connections are open. One that the server has closed counts until the pool notices it.
    `returned_at`: when a place was last given back.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.pid = os.getpid()
        self.idle: deque[tuple[float, Conn]] = deque()
        self.lent = 0
        self.opened = 0
        self.waiters: deque[Waiter[Conn]] = deque()
        self.returned_at = 0.0
        self.closed = False

    def enter(self) -> bool:
        """Take a place if one is free; return whether it was."""
        if self.lent >= self.size or self.waiters:
            return False
        self.lent += 1
        return True

    def pop_idle(self) -> Conn | None:
        """Return the connection that was used last; None if none is idle."""
        return self.idle.pop()[1] if self.idle else None

    def leave(self, conn: Conn | None, now: float) -> Conn | None:
        """Give a place back, with its connection if it can be used again; return the connection to close, if any."""
        self.returned_at = now
        kept = None if self.closed else conn
        if self.waiters:
            self.waiters.popleft().deliver(kept, None)
        else:
            self.lent -= 1
            if kept is not None:
                self.idle.append((now, kept))
        return conn if kept is None else None

    def fail(self, error: PgschedError) -> None:
        """Give all waiting callers the error with which a connection could not be opened, unless others are open.

        Otherwise each of them would try in vain in its turn, and the last one would wait for very long.
        """
        while self.waiters and not self.opened:
            self.waiters.popleft().deliver(None, error)

    def pop_expired(self, until: float) -> list[Conn]:
        """Return the connections that are idle since `until` or longer, and forget them."""
        found: list[Conn] = []
        while self.idle and self.idle[0][0] <= until:
            found.append(self.idle.popleft()[1])
        self.opened -= len(found)
        return found

    def close(self) -> list[Conn]:
        """Keep no connection from now on; return the idle ones."""
        self.closed = True
        return self.pop_expired(float("inf"))

    def seconds_left(self, since: float, now: float, patience_s: float) -> float:
        """Return for how long a caller that waits since `since` may wait on, if no place is given back."""
        return max(since, self.returned_at) + patience_s - now


def busy_error(size: int, patience_s: float) -> DatabaseUnreachable:
    """Return the error for a caller that has waited too long for a place."""
    return DatabaseUnreachable(
        f"all {size} database connections of this App are in use, and none was given back for {patience_s:g} s:"
        " nothing was sent, try again; use fewer threads or coroutines at once, or give App(pool_size=...) more"
    )
