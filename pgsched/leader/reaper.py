"""Find expired leases without delaying the tick.

The rule: such a look reads whatever is queued or running, because claims move no index entry. It comes after the tick.
While it takes no longer than QUICK_S it is made in the leader's session: every reap period while a worker is silent,
else every twelfth. Otherwise a thread makes it in a session of its own that lives as long as the look: for no more than
a twentieth of the time, but once in LONGEST_S, and as often as the settings say while a worker's claims may have ended
that says nothing any more. What is found is a hint: it is reaped by its key, under the fence, if its lease has ended
then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import BY_INDEX, Connection, DatabaseError, connect, look_for_client
from pgsched.db.queries.leader import expired_leases
from pgsched.errors import PgschedError

logger = log.get("leader")
QUICK_S = 0.02
SHARE = 20
FIRST_PAUSE_S = 5.0  # at most, after one that was slow
LONGEST_S = 60.0
TIMEOUT_S = 60.0  # of the first, and PATIENCE times what the last one took: a session may never answer
PATIENCE = 10
LOOK_S = 0.2  # between two questions whether the thread has done
SETTINGS = BY_INDEX | {"max_parallel_workers_per_gather": "0"}


@dataclass(frozen=True, slots=True)
class ReapQuery:
    """What one look is to find: up to `n` claims, those that have expired if they are to be reaped, and those that are
    too long. `now_s`: the database's clock."""

    n: int
    now_s: float
    reaping: bool
    long: bool

    @property
    def before_s(self) -> float:
        """Leases that had ended then are asked for."""
        return self.now_s if self.reaping else 0.0


@dataclass(frozen=True, slots=True)
class ReapResult:
    """The answer: runs, as `expired_leases.astray` says."""

    query: ReapQuery
    expired: list[int]
    long: list[int]

    @property
    def whole(self) -> bool:
        """Is it all that there is?"""
        return len(self.expired) + len(self.long) < self.query.n


class Search:
    """The looks of one term, one at a time. `dsn`: for the session of its own (None: there is none). `next_at`: none
    before, unless there is a reason for it."""

    def __init__(self, dsn: str | None = None, next_at: float = 0.0) -> None:
        self._dsn = dsn
        self._thread: ReapThread | None = None
        self.apart = False  # are they slow, and so made in a session of their own?
        self._unheard = False
        self._pause_s = 0.0
        self._took_s = 0.0
        self.next_at = next_at
        self.began_s = 0.0  # the last one for expired claims that has been answered, by the database's clock

    @property
    def busy(self) -> bool:
        """Is one under way?"""
        return self._thread is not None

    def hurry(self) -> None:
        """Make the next look as soon as it is asked for, and forget what is under way."""
        self.next_at = 0.0
        if self._thread is not None:
            self._thread.forgotten = True

    def make(self, conn: Connection[Any], query: ReapQuery) -> ReapResult | None:
        """Look now; None: the answer comes later."""
        if self._dsn is None or self._unheard:
            self._unheard = False
            return self._note(ReapResult(query, *expired_leases.astray(conn, query.n, query.before_s, long=query.long)))
        if not self.apart:
            answer = expired_leases.astray_within(conn, QUICK_S, query.n, query.before_s, long=query.long)
            if answer is not None:
                return self._note(ReapResult(query, *answer))
            self.apart = True
        thread = ReapThread(self._dsn, query, max(TIMEOUT_S, PATIENCE * self._took_s))
        try:
            thread.start()
        except RuntimeError as error:  # there may be no more threads
            logger.warning("claims could not be looked at", error=str(error))
            self._unheard = True
            return None
        self._thread = thread
        return None

    def answer(self) -> ReapResult | None:
        """What the one that was under way has found, once."""
        done = self._thread
        if done is None or done.is_alive():
            return None
        self._thread = None
        self._unheard, self._took_s = done.unheard, done.took_s
        self.apart = done.took_s > QUICK_S / 2
        if not done.forgotten:
            self._pause_s = min(LONGEST_S, SHARE * done.took_s, max(FIRST_PAUSE_S, 2 * self._pause_s))
            self.next_at = time.monotonic() + self._pause_s
        return None if done.forgotten or done.found is None else self._note(done.found)

    def _note(self, found: ReapResult) -> ReapResult:
        if found.query.reaping:
            self.began_s = found.query.now_s
        return found


class ReapThread(threading.Thread):
    """One look in a session of its own. `unheard`: there was none to be had."""

    def __init__(self, dsn: str, query: ReapQuery, timeout_s: float) -> None:
        super().__init__(name="pgsched-reap", daemon=True)
        self._dsn = dsn
        self._asked = query
        self._timeout_s = timeout_s
        self.found: ReapResult | None = None
        self.forgotten = False
        self.unheard = True
        self.took_s = 0.0

    def run(self) -> None:
        try:
            with connect(self._dsn, purpose="reap", timeout_s=self._timeout_s, settings=SETTINGS) as conn:
                self.unheard = False
                look_for_client(conn)
                self._look(conn)
        except (DatabaseError, PgschedError) as error:  # the next look follows
            logger.warning("claims could not be looked at", error=log.redact(str(error).strip()))
        except Exception:  # never silent, and never the end of the process
            logger.error("claims could not be looked at", exc_info=True)

    def _look(self, conn: Connection[Any]) -> None:
        began = time.monotonic()
        try:
            query = self._asked
            self.found = ReapResult(query, *expired_leases.astray(conn, query.n, query.before_s, long=query.long))
        finally:
            self.took_s = time.monotonic() - began


def log_expired(reaped: list[dict[str, Any]], lost: Mapping[int, Mapping[str, Any]]) -> None:
    """Log what was taken back: each attempt that had begun, with its task and worker where they are known."""
    begun = [run for run in reaped if run["begun"]]
    for run in begun:
        whose = lost.get(run["id"], {})
        logger.warning("claim expired", run=run["id"], task=whose.get("task"), worker=whose.get("worker"),
                       attempt=run["attempt"], crashes=run["crashes"], now=run["state"])  # fmt: skip
    if len(begun) < len(reaped):
        logger.warning("claims expired that are not known to have begun", count=len(reaped) - len(begun))
