"""The asyncio connections of an App: a few for each event loop, which all its tasks share.

Invariant: a connection is used by one task at a time, and only on the event loop that opened it.

Idle connections are closed by a timer of their loop, so no thread is needed. Those of a loop that was closed are closed
when another loop is first used, or with the App.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection

from pgsched.db.connection.forks import tell_of_forks
from pgsched.db.connection.places import IDLE_S, PATIENCE_S, Places, busy_error
from pgsched.db.connection.reuse import is_alive, is_idle
from pgsched.errors import PgschedError

T = TypeVar("T")
Conn = AsyncConnection[Any]
Connect = Callable[[], Awaitable[Conn]]


class TaskWaiter:
    """An asyncio task that waits for a place."""

    def __init__(self) -> None:
        self.served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.conn: Conn | None = None
        self.error: PgschedError | None = None

    def deliver(self, conn: Conn | None, error: PgschedError | None) -> None:
        """Wake the task: it has a place now, or an error."""
        self.conn, self.error = conn, error
        self.served.set_result(None)


class LoopPool:
    """Up to `size` connections of one event loop.

    It keeps no reference to the loop, which is its key in a weak dictionary.
    """

    def __init__(self, connect: Connect, size: int, idle_s: float, patience_s: float) -> None:
        self._connect = connect
        self._places: Places[Conn] = Places(size)
        self._idle_s = idle_s
        self._patience_s = patience_s
        self._timed = False

    async def use(self, call: Callable[[Conn], Awaitable[T]]) -> T:
        """Await `call` with a connection, and return its result."""
        idle = self._places.pop_idle() if self._places.enter() else await self._wait()
        conn = None
        try:
            conn = await self._working(idle)
            return await call(conn)
        finally:
            self._leave(conn)

    def close(self) -> None:
        """Close the idle connections now, and each other one when its call ends."""
        for conn in self._places.close():
            conn.pgconn.finish()  # all that `await conn.close()` does

    async def _wait(self) -> Conn | None:
        """Wait for a place, and return the connection that comes with it, if any."""
        places, waiter, since = self._places, TaskWaiter(), time.monotonic()
        places.waiters.append(waiter)
        try:
            while not waiter.served.done():
                left = places.seconds_left(since, time.monotonic(), self._patience_s)
                if left <= 0:
                    raise busy_error(places.size, self._patience_s)
                await asyncio.wait([waiter.served], timeout=left)
        except BaseException:
            if not waiter.served.done():
                places.waiters.remove(waiter)
            elif waiter.error is None:  # cancelled in the moment in which it was served
                self._leave(waiter.conn)
            raise
        if waiter.error is not None:
            raise copy.copy(waiter.error)
        return waiter.conn

    async def _working(self, conn: Conn | None) -> Conn:
        """Return the connection if it works, else another idle one, else a new one."""
        while conn is not None:
            if is_alive(conn):
                return conn
            conn.pgconn.finish()
            self._places.opened -= 1
            conn = self._places.pop_idle()
        try:
            conn = await self._connect()
        except PgschedError as error:
            self._places.fail(error)
            raise
        self._places.opened += 1
        return conn

    def _leave(self, conn: Conn | None) -> None:
        """Give a place back, with its connection. It never waits, so that no cancellation can interrupt it."""
        places = self._places
        if places.pid != os.getpid():
            return  # forked meanwhile: place and connection are the parent's
        if conn is not None and not is_idle(conn):
            conn.pgconn.finish()
            places.opened -= 1
            conn = None
        conn = places.leave(conn, time.monotonic())
        if conn is not None:
            conn.pgconn.finish()
        if places.idle and not self._timed:
            self._set_timer(self._idle_s)

    def _close_expired(self) -> None:
        """Close what was idle for too long, and set the timer for the next one."""
        now = time.monotonic()
        for conn in self._places.pop_expired(now - self._idle_s):
            conn.pgconn.finish()
        idle = self._places.idle
        self._timed = False
        if idle:
            self._set_timer(idle[0][0] + self._idle_s - now)

    def _set_timer(self, seconds: float) -> None:
        with contextlib.suppress(RuntimeError):  # no loop runs: a task that was never finished is removed from memory
            asyncio.get_running_loop().call_later(seconds, self._close_expired)
            self._timed = True


class LoopPools:
    """The asyncio connections of an App, up to `size` for each event loop.

    `connect`: opens a connection on the running loop. `idle_s`, `patience_s`: as in `SharedPool`.
    """

    def __init__(self, connect: Connect, size: int, *, idle_s: float = IDLE_S, patience_s: float = PATIENCE_S) -> None:
        self._options = (connect, size, idle_s, patience_s)
        self.forget_parent()
        tell_of_forks(self)

    async def use(self, call: Callable[[Conn], Awaitable[T]]) -> T:
        """Await `call` with a connection of the running loop, and return its result.

        Raises DatabaseUnreachable, also where all connections stay in use for too long.
        """
        loop = asyncio.get_running_loop()
        return await (self._loops.get(loop) or self._begin(loop)).use(call)

    def close(self) -> None:
        """Close the connections of the running loop, and of all loops that do not run.

        Those of a loop that runs in another thread belong to that thread.
        """
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # none in this thread
            running = None
        with self._lock:
            for loop in [loop for loop in self._loops if loop is running or not loop.is_running()]:
                self._loops.pop(loop).close()

    def before_fork(self) -> None:
        """Do nothing: no thread belongs to this, and the parent goes on to use the connections of its loops."""

    def forget_parent(self) -> None:
        """Begin anew: in a new App, and in a child process."""
        self._lock = threading.RLock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopPool] = WeakKeyDictionary()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> LoopPool:
        """Return the pool of a loop that has none yet."""
        with self._lock:
            for ended in [other for other in self._loops if other.is_closed()]:
                self._loops.pop(ended).close()  # nothing else will
            return self._loops.setdefault(loop, LoopPool(*self._options))
