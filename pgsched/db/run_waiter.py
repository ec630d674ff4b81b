"""Wait for runs to end: one thread and one connection for all waits of an App.

Invariant: no end is missed. The thread listens, then marks the runs, then reads their states, and only then waits. A
run that ends after it was marked notifies, and a run that ended before is found by the read. The states are also read
every few seconds without a notification.

Nothing is believed that a notification says. A login that may read runs but not change them gets none, because it
cannot mark them. Behind a pooler that lends sessions for a transaction there are none, so the states are read more
often.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.failures import Reaction, back_off_s, classify, explain_error
from pgsched.db.connection.forks import tell_of_forks
from pgsched.db.connection.notifications import Bell
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.runs import outcomes
from pgsched.db.run_tickets import States, Ticket, result_of
from pgsched.errors import PgschedError
from pgsched.threads import BoundedThreads

logger = log.get("wait")

LISTEN = "LISTEN pgsched_ended"
IDLE_S = 60.0  # the thread and its connection end after this time without waiters
# A claim passes over a run while its mark is written: not for as long as a flush to disk. A lost mark is made up for.
SETTINGS = {"synchronous_commit": "off"}
LOOK_AT_LEAST_S = 5.0  # if no notification comes
LONGEST_POLL_S = 1.0  # behind a pooler
LONGEST_LOCKED_S = 0.05  # while a run is locked, so that it cannot be marked: it may just end
# A call is looked at no sooner again, however many notifications come. A look takes a tenth of this time.
REST_S, REST_PER_RUN_S, LONGEST_REST_S = 0.002, 3e-5, 0.3
FEW = 100  # runs of one call


class RunWaiter:
    """Waits for runs of one database. All methods can be called from any thread.

    `find_dsn`: returns the DSN of the database.
    """

    def __init__(self, find_dsn: Callable[[], str]) -> None:
        self._find_dsn = find_dsn
        self._adding = BoundedThreads(1)  # for asyncio: the DSN may be that of a server that has to be started
        self._serving: Serving | None = None
        self.forget_parent()
        tell_of_forks(self)

    def before_fork(self) -> None:
        """End the thread and its connection where no call waits: a child should inherit neither."""
        with self._lock:
            serving = None if self._tickets else self._end_serving()
        if serving is not None:
            serving.join(1.0)

    def forget_parent(self) -> None:
        """Begin anew: in a new waiter, and in a child process, which has no thread, and a lock that may be held."""
        if self._serving is not None:
            self._serving.bell.close()
        self._lock = threading.RLock()  # re-entrant: a signal handler may call `close` while its own thread is inside
        self._tickets: list[Ticket] = []
        self._serving = None

    def wait(self, ids: Iterable[int], timeout_s: float | None) -> States:
        """Wait until all these runs have ended, or for `timeout_s` seconds; return the states of those that have.

        Raises PgschedError where the database cannot be asked: at once if no retry can help, otherwise when the time is
        over.
        """
        ready = threading.Event()
        ticket = Ticket(ids, ready.set)
        try:
            self._add(ticket)
            if ticket.left:
                ready.wait(timeout_s)
        finally:
            self._remove(ticket)
        return result_of(ticket)

    async def wait_async(self, ids: Iterable[int], timeout_s: float | None) -> States:
        """Wait like `wait`, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed, so that nobody waits any more
                loop.call_soon_threadsafe(ready.set)

        ticket = Ticket(ids, wake)
        try:
            await self._adding.run(lambda: self._add(ticket))
            if ticket.left:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ready.wait(), timeout_s)
        finally:
            self._remove(ticket)
        return result_of(ticket)

    def close(self) -> None:
        """End the thread and its connection; calls that wait go on waiting with a new one."""
        with self._lock:
            serving = self._end_serving()
            if serving is not None and self._tickets:
                self._start(serving.dsn)

    def _add(self, ticket: Ticket) -> None:
        if not ticket.left:
            return
        dsn = self._find_dsn()  # here, where a refusal reaches the caller at once
        with self._lock:
            if ticket.dropped:  # its caller was cancelled
                return
            self._tickets.append(ticket)
            if self._serving is None:
                self._start(dsn)
            else:
                self._serving.wake()

    def _remove(self, ticket: Ticket) -> None:
        with self._lock, contextlib.suppress(ValueError):
            ticket.dropped = True
            self._tickets.remove(ticket)

    def _start(self, dsn: str) -> None:
        """Start a thread, while the lock is held. Where there can be none, the calls get the error."""
        try:
            serving = Serving(dsn, self._next, self._fail)
            serving.start()
        except (OSError, RuntimeError) as error:
            self._fail_all(error)
        else:
            self._serving = serving

    def _end_serving(self) -> Serving | None:
        """Let the thread end soon, while the lock is held; return it, if there is one."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.end()
        return serving

    def _next(self, serving: Serving, idle_s: float) -> list[Ticket] | None:
        """Return the calls that wait; None if this thread is to end."""
        with self._lock:
            if self._serving is not serving:
                return None
            tickets = [ticket for ticket in self._tickets if ticket.left]
            if not tickets and idle_s > IDLE_S:
                self._serving = None
                return None
            return tickets

    def _fail(self, serving: Serving, error: BaseException) -> None:
        """Let the calls go on with the error of a thread that cannot go on; the next call starts another one."""
        with self._lock:
            if self._serving is serving:
                self._serving = None
                self._fail_all(error)

    def _fail_all(self, error: BaseException) -> None:
        what = f"waiting for runs failed: {type(error).__name__}: {error}; the runs go on: wait for them again"
        for ticket in self._tickets:
            ticket.fail(PgschedError(what))


class Serving:
    """The thread that looks at the runs, with its connection."""

    def __init__(
        self,
        dsn: str,
        tickets: Callable[[Serving, float], list[Ticket] | None],
        fail: Callable[[Serving, BaseException], None],
    ) -> None:
        self.dsn = dsn
        self._tickets = tickets
        self._fail = fail
        self.bell = Bell()
        self._thread = threading.Thread(target=self._run, name="pgsched-wait", daemon=True)
        self._ended = False
        self._failures = 0

    def start(self) -> None:
        """Start the thread. Raises RuntimeError where the system has none left."""
        try:
            self._thread.start()
        except RuntimeError:
            self.bell.close()
            raise

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the thread."""
        self._thread.join(timeout_s)

    def wake(self) -> None:
        """Make the thread look at once. Only a waiter calls this that has this thread: its pipe is open then."""
        self.bell.ring()

    def end(self) -> None:
        """Make the thread end soon."""
        self._ended = True
        self.wake()

    def _run(self) -> None:
        """Look at the runs of all calls until none has waited for a while."""
        try:
            while not self._ended:
                try:
                    with connect(self.dsn, purpose="wait", settings=SETTINGS) as conn:
                        self._serve(conn)
                    return
                except (DatabaseError, PgschedError) as error:
                    if not self._tickets(self, math.inf):  # nobody waits: the next call starts another thread
                        return
                    self._pause_after(error)
        except BaseException as error:
            self._fail(self, error)
        finally:
            self.bell.close()

    def _pause_after(self, error: Exception) -> None:
        """Tell the calls of the error where no retry can help, and keep it for them otherwise; then pause."""
        explained = error if isinstance(error, PgschedError) else explain_error(error)  # type: ignore[arg-type]
        final = classify(error) in (Reaction.CONFIGURATION, Reaction.VALUE)
        if not self._failures:
            logger.warning("waiting for runs again", error=str(explained))
        for ticket in self._tickets(self, 0.0) or ():
            if final:
                ticket.fail(explained)
            else:
                ticket.error = explained
        self._failures += 1
        self.bell.wait(None, back_off_s(self._failures, 0.1))

    def _serve(self, conn: Connection[Any]) -> None:
        listens = not is_shared(conn)
        if listens:
            self.bell.attach(conn)
            conn.execute(LISTEN)
        for ticket in self._tickets(self, 0.0) or ():  # runs may have ended while this connection was not there
            ticket.stale, ticket.unmarked = True, list(ticket.left)
        used_at = time.monotonic()
        while (tickets := self._tickets(self, time.monotonic() - used_at)) is not None and not self._ended:
            if self.bell.heard:
                self.bell.heard.clear()
                for ticket in tickets:
                    ticket.stale = True
            now = time.monotonic()
            due = [ticket for ticket in tickets if ticket.rest_until <= now and (ticket.stale or ticket.look_by <= now)]
            if due:
                self._look(conn, due, listens)
            used_at = time.monotonic() if tickets else used_at
            next_look = min((ticket.next_look_at() for ticket in tickets), default=used_at + IDLE_S)
            self.bell.wait(conn, next_look - used_at)

    def _look(self, conn: Connection[Any], tickets: Sequence[Ticket], listens: bool) -> None:
        """Look at the runs of these calls, and plan the next look."""
        for ticket in tickets:
            ticket.stale = False
        if listens:
            mark(conn, tickets)
        states = look(conn, tickets)
        self._failures = 0
        now = time.monotonic()
        together = sum(len(ticket.left) for ticket in tickets if len(ticket.left) <= FEW)
        for ticket in tickets:
            ticket.error = None
            ticket.deliver(states)
            # calls with few runs share their looks; one with many has looks of its own
            count = together if len(ticket.left) <= FEW else len(ticket.left)
            ticket.rest_until = now + min(LONGEST_REST_S, ticket.rest_s + REST_PER_RUN_S * count)
            ticket.rest_s = REST_S  # but none after the first look: the first notification is probably its run's
            if listens and ticket.unmarked:
                ticket.look_by, ticket.locked_s = now + ticket.locked_s, min(LONGEST_LOCKED_S, 2 * ticket.locked_s)
            elif listens:
                ticket.look_by = now + LOOK_AT_LEAST_S
            else:
                ticket.look_by, ticket.poll_s = now + ticket.poll_s, min(LONGEST_POLL_S, 1.5 * ticket.poll_s)


def mark(conn: Connection[Any], tickets: Sequence[Ticket]) -> None:
    """Ask for notifications of runs that were not asked for yet. Where one is locked, ask again with the next look."""
    ids = list(dict.fromkeys(run_id for ticket in tickets for run_id in ticket.unmarked if run_id in ticket.left))
    locked = 0
    for start in range(0, len(ids), outcomes.MOST):
        locked += outcomes.await_runs(conn, ids[start : start + outcomes.MOST])
    if not locked:
        for ticket in tickets:
            ticket.unmarked = []


def look(conn: Connection[Any], tickets: Sequence[Ticket]) -> States:
    """Return the states of those runs of these calls that have ended."""
    ids = list(dict.fromkeys(run_id for ticket in tickets for run_id in [*ticket.left]))
    found: States = {}
    for start in range(0, len(ids), outcomes.MOST):
        found |= outcomes.ended(conn, ids[start : start + outcomes.MOST])
    return found
