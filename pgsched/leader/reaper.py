"""Find expired leases without delaying the tick.

Claims move no index entry, so a search reads all runs that are queued or running. It comes after the tick.

- While a search takes no longer than QUICK_S, the leader's session makes it. While a worker is silent it is made every
  reap period, else every twelfth.
- A slower search runs in a thread, in a session of its own that lives as long as the search. It takes at most a
  twentieth of the time, but comes at least once in LONGEST_S. While claims of a silent worker may have ended, it comes
  every reap period.

Invariant: the result of a search is a hint. A run is reaped by its key, under the fence, and only if its lease has
ended by then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import BY_INDEX, Connection, DatabaseError, connect, enable_client_check
from pgsched.db.queries.leader import expired_leases
from pgsched.errors import PgschedError

logger = log.get("leader")
QUICK_S = 0.02
SHARE = 20  # slow searches take at most one part in this many of the time
FIRST_PAUSE_S = 5.0  # longest pause after the first slow search
LONGEST_S = 60.0
TIMEOUT_S = 60.0  # limit of a search, or PATIENCE times the last one's time if longer: a session may never answer
PATIENCE = 10
LOOK_S = 0.2  # pause between two checks whether the thread has ended
SETTINGS = BY_INDEX | {"max_parallel_workers_per_gather": "0"}


@dataclass(frozen=True, slots=True)
class ReapQuery:
    """One request to search for up to `n` claims.

    `now_s`: the database's clock, in seconds since 1970.
    `reaping`: find expired claims, to take them back.
    `wants_long_leases`: find leases that are too long.
    """

    n: int
    now_s: float
    reaping: bool
    wants_long_leases: bool

    @property
    def before_s(self) -> float:
        """Only leases that had ended by this instant are found; 0 finds none."""
        return self.now_s if self.reaping else 0.0


@dataclass(frozen=True, slots=True)
class ReapResult:
    """The runs that a search found: those with an expired lease, and those with one that is too long."""

    query: ReapQuery
    expired: list[int]
    long: list[int]

    @property
    def whole(self) -> bool:
        """Whether this is all that there is."""
        return len(self.expired) + len(self.long) < self.query.n


class LeaseSearch:
    """The searches of one term, one at a time.

    `dsn`: for a session of its own; None: all searches are made in the leader's session.
    `next_at`: monotonic instant before which no search is made without a special reason.
    """

    def __init__(self, dsn: str | None = None, next_at: float = 0.0) -> None:
        self._dsn = dsn
        self._thread: ReapThread | None = None
        self.uses_thread = False  # searches are slow, and so made in a session of their own
        self._thread_failed = False  # the last thread got no session: search once in the leader's session
        self._pause_s = 0.0
        self._took_s = 0.0
        self.next_at = next_at
        self.last_reap_search_s = 0.0  # database's clock at the last search for expired claims that was answered

    @property
    def busy(self) -> bool:
        """Whether a search is under way."""
        return self._thread is not None

    def search_now(self) -> None:
        """Make the next search as soon as it is asked for, and ignore the result of the one under way."""
        self.next_at = 0.0
        if self._thread is not None:
            self._thread.ignored = True

    def search(self, conn: Connection[Any], query: ReapQuery) -> ReapResult | None:
        """Search now; return None if the answer comes later."""
        if self._dsn is None or self._thread_failed:
            self._thread_failed = False
            return self._note(
                ReapResult(
                    query, *expired_leases.find_bad_leases(conn, query.n, query.before_s, long=query.wants_long_leases)
                )
            )
        if not self.uses_thread:
            answer = expired_leases.find_bad_leases_within(
                conn, QUICK_S, query.n, query.before_s, long=query.wants_long_leases
            )
            if answer is not None:
                return self._note(ReapResult(query, *answer))
            self.uses_thread = True
        thread = ReapThread(self._dsn, query, max(TIMEOUT_S, PATIENCE * self._took_s))
        try:
            thread.start()
        except RuntimeError as error:  # the process may have no thread left
            logger.warning("claims could not be looked at", error=str(error))
            self._thread_failed = True
            return None
        self._thread = thread
        return None

    def take_result(self) -> ReapResult | None:
        """Return the result of the search that was under way, once."""
        done = self._thread
        if done is None or done.is_alive():
            return None
        self._thread = None
        self._thread_failed, self._took_s = done.has_no_session, done.took_s
        self.uses_thread = done.took_s > QUICK_S / 2
        if not done.ignored:
            self._pause_s = min(LONGEST_S, SHARE * done.took_s, max(FIRST_PAUSE_S, 2 * self._pause_s))
            self.next_at = time.monotonic() + self._pause_s
        return None if done.ignored or done.result is None else self._note(done.result)

    def _note(self, found: ReapResult) -> ReapResult:
        if found.query.reaping:
            self.last_reap_search_s = found.query.now_s
        return found


class ReapThread(threading.Thread):
    """A thread that makes one search in a session of its own. `has_no_session`: it got no session."""

    def __init__(self, dsn: str, query: ReapQuery, timeout_s: float) -> None:
        super().__init__(name="pgsched-reap", daemon=True)
        self._dsn = dsn
        self._query = query
        self._timeout_s = timeout_s
        self.result: ReapResult | None = None
        self.ignored = False
        self.has_no_session = True
        self.took_s = 0.0

    def run(self) -> None:
        """Connect and search; keep the result in `result`."""
        try:
            with connect(self._dsn, purpose="reap", timeout_s=self._timeout_s, settings=SETTINGS) as conn:
                self.has_no_session = False
                enable_client_check(conn)
                self._look(conn)
        except (DatabaseError, PgschedError) as error:  # the next search follows
            logger.warning("claims could not be looked at", error=log.redact(str(error).strip()))
        except Exception:  # log it, and never end the process
            logger.error("claims could not be looked at", exc_info=True)

    def _look(self, conn: Connection[Any]) -> None:
        began = time.monotonic()
        try:
            query = self._query
            self.result = ReapResult(
                query, *expired_leases.find_bad_leases(conn, query.n, query.before_s, long=query.wants_long_leases)
            )
        finally:
            self.took_s = time.monotonic() - began


def log_expired(reaped: list[dict[str, Any]], lost: Mapping[int, Mapping[str, Any]]) -> None:
    """Log the claims that were taken back: each attempt that had begun, with its task and worker if known."""
    begun = [run for run in reaped if run["begun"]]
    for run in begun:
        whose = lost.get(run["id"], {})
        logger.warning("claim expired", run=run["id"], task=whose.get("task"), worker=whose.get("worker"),
                       attempt=run["attempt"], crashes=run["crashes"], now=run["state"])  # fmt: skip
    if len(begun) < len(reaped):
        logger.warning("claims expired that are not known to have begun", count=len(reaped) - len(begun))
