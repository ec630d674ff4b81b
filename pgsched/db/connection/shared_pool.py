"""The blocking connections of an App: a few, which all threads share.

Invariant: only one thread has a connection. It is not lent if this process can see, without sending anything, that the
server has closed it.

A connection that was idle for a minute is closed, although nothing is called. A daemon thread waits for that. It only
exists while connections are idle, and never delays the end of the process.

The lock is re-entrant, because a signal handler may enqueue while its own thread is inside.
"""

from __future__ import annotations

import contextlib
import copy
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from psycopg import Connection

from pgsched.db.connection.forks import tell_of_forks
from pgsched.db.connection.places import IDLE_S, PATIENCE_S, Places, busy_error
from pgsched.db.connection.reuse import is_alive, is_idle
from pgsched.errors import PgschedError
from pgsched.threads import BoundedThreads, NotBegun

T = TypeVar("T")
Conn = Connection[Any]


# Wakes the thread that closes idle connections. Its `put` may be called while garbage is collected, in any thread
# and at the end of the interpreter. An Event has a lock: if a thread that is gone holds it, the program never ends.
Wake = queue.SimpleQueue[None]


class ThreadWaiter:
    """A thread that waits for a place. `unserved`: a lock that is held until it has one."""

    def __init__(self) -> None:
        self.unserved = threading.Lock()  # an Event costs three times as much
        self.unserved.acquire()
        self.conn: Conn | None = None
        self.error: PgschedError | None = None

    def deliver(self, conn: Conn | None, error: PgschedError | None) -> None:
        """Wake the thread: it has a place now, or an error."""
        self.conn, self.error = conn, error
        self.unserved.release()


class SharedPool:
    """Up to `size` blocking connections, opened when they are needed. Thread-safe.

    `connect`: opens a connection.
    `idle_s`: how long an idle connection stays open, in seconds.
    `patience_s`: how long a thread waits without that any connection is given back, in seconds.
    """

    def __init__(
        self, connect: Callable[[], Conn], size: int, *, idle_s: float = IDLE_S, patience_s: float = PATIENCE_S
    ) -> None:
        self._connect = connect
        self._size = size
        self._idle_s = idle_s
        self._patience_s = patience_s
        self.forget_parent()
        tell_of_forks(self)

    def forget_parent(self) -> None:
        """Begin anew: in a new pool, and in a child process."""
        self._lock = threading.RLock()
        self._places: Places[Conn] = Places(self._size)
        self._wake = Wake()
        self._closer: threading.Thread | None = None
        self._calls = BoundedThreads(self._size)

    def use(self, call: Callable[[Conn], T]) -> T:
        """Call `call` with a connection, and return its result.

        Raises DatabaseUnreachable, also where all connections stay in use for too long.
        """
        places = self._places
        idle = self._enter(places)
        conn = None
        try:
            conn = self._working(places, idle)
            return call(conn)
        finally:
            self._leave(places, conn)

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        """Return the result of a call that uses this pool, made in a thread.

        There are no more threads than connections.

        A call that waits for its thread fails as one that waits for a connection: with DatabaseUnreachable.
        """
        since = time.monotonic()
        try:
            return await self._calls.run(
                call, lambda: self._places.seconds_left(since, time.monotonic(), self._patience_s)
            )
        except NotBegun:
            raise busy_error(self._size, self._patience_s) from None

    def close(self) -> None:
        """Close the idle connections now, and each other one when its call ends. The next use opens one again."""
        with self._lock:
            places, self._places = self._places, Places(self._size)
            self._wake.put(None)
            self._wake, self._closer = Wake(), None
            idle = places.close()
        for conn in idle:
            conn.close()

    def before_fork(self) -> None:
        """Close idle connections, and end the thread that waits to close them: a child should inherit neither."""
        closer = self._closer
        self.close()
        if closer is not None:
            closer.join(1.0)

    def close_expired(self, wake: Wake) -> float | None:
        """Close what was idle for too long; return in how many seconds the next one will be, None if none is idle.

        `wake`: what the thread that calls this waits for; after `close`, it is another thread's turn.
        """
        with self._lock:
            if wake is not self._wake:
                return None
            now = time.monotonic()
            expired = self._places.pop_expired(now - self._idle_s)
            idle = self._places.idle
            left = idle[0][0] + self._idle_s - now if idle else None
            if left is None:
                self._closer = None
        for conn in expired:
            conn.close()
        return left

    def _enter(self, places: Places[Conn]) -> Conn | None:
        """Take a place, and return the idle connection that comes with it, if any."""
        with self._lock:
            if places.enter():
                return places.pop_idle()
            waiter = ThreadWaiter()
            places.waiters.append(waiter)
        try:
            self._wait(places, waiter)
        except BaseException:
            self._give_up(places, waiter)
            raise
        if waiter.error is not None:
            raise copy.copy(waiter.error)
        return waiter.conn

    def _wait(self, places: Places[Conn], waiter: ThreadWaiter) -> None:
        """Wait until the waiter is served. Raises DatabaseUnreachable where no place is given back for too long."""
        since = time.monotonic()
        while (left := places.seconds_left(since, time.monotonic(), self._patience_s)) > 0:
            if waiter.unserved.acquire(timeout=left):
                return
        raise busy_error(self._size, self._patience_s)

    def _give_up(self, places: Places[Conn], waiter: ThreadWaiter) -> None:
        """Wait no longer; a place that was delivered in this moment goes to the next caller."""
        with self._lock:
            if waiter in places.waiters:
                return places.waiters.remove(waiter)
        if waiter.error is None:
            self._leave(places, waiter.conn)
        return None

    def _working(self, places: Places[Conn], conn: Conn | None) -> Conn:
        """Return the connection if it works, else another idle one, else a new one."""
        while conn is not None:
            if is_alive(conn):
                return conn
            conn.close()
            with self._lock:
                places.opened -= 1
                conn = places.pop_idle()
        try:
            conn = self._connect()
        except PgschedError as error:
            with self._lock:
                places.fail(error)
                if not places.opened:
                    self._calls.fail_waiting(error)
            raise
        with self._lock:
            places.opened += 1
        return conn

    def _leave(self, places: Places[Conn], conn: Conn | None) -> None:
        """Give a place back, with its connection."""
        if places.pid != os.getpid():
            return  # forked meanwhile: place and connection are the parent's
        broken = conn is not None and not is_idle(conn)
        if conn is not None and broken:
            conn.close()
            conn = None
        with self._lock:
            places.opened -= broken
            conn = places.leave(conn, time.monotonic())
            if self._closer is None and self._places.idle:
                self._start_closer()
        if conn is not None:
            conn.close()

    def _start_closer(self) -> None:
        """Start the thread that closes idle connections. Without it (at exit), they stay until the next use."""
        wake = self._wake
        pool = weakref.ref(self, lambda _: wake.put(None))
        thread = threading.Thread(target=close_idle, args=[pool, wake], name="pgsched-idle", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, or the system has no thread left
            return
        self._closer = thread


def close_idle(found: Callable[[], SharedPool | None], wake: Wake) -> None:
    """Close a pool's connections when they were idle for too long; end when none is idle, or the pool is gone."""
    while (pool := found()) is not None:
        seconds = pool.close_expired(wake)
        del pool  # an App that nothing else uses may go
        if seconds is None:
            return
        with contextlib.suppress(queue.Empty):
            wake.get(timeout=max(0.0, seconds))
