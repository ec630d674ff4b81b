"""One session's attempts to become the leader, until it may begin a term.

A candidate asks for a session lock about once a second, and never waits for it in the server. Where there are many
candidates, each asks less often (`try_period_s`).

The lock is only a cheap way to wait, because any session may take it. Two cases are different:

- A session that does not lead holds the lock. Then a candidate stands once the last term was not seen for TERM_GONE_S.
- A pooler lends sessions for one transaction, so that no session can hold a lock. Then a candidate stands once the last
  term has resigned, or was not seen for as long as a leader's session would have lasted.
"""

from __future__ import annotations

from typing import Any

from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import leadership
from pgsched.db.queries.leader.leadership import NotLeading
from pgsched.leader.timing.pauses import Pauses

TERM_GONE_S = 3.0  # seconds: a term that was begun without the session lock has ended if it was not seen for this long
DEAF_S = 0.05  # seconds after a try in which notifications are ignored: any session may send them
FULL_RATE_CANDIDATES = 20  # up to this many candidates, each tries at the configured period
MAX_PERIOD_FACTOR = 3.0  # times the period at most: many candidates may have disappeared together with the leader
RECOUNT = 64  # tries after which a candidate counts the candidates again; at first after 1, 2, 4 and so on


def try_period_s(settings: LeaderSettings, candidates: int) -> float:
    """Return the seconds between two tries: up to three times the period for more than FULL_RATE_CANDIDATES."""
    seconds = settings.election_every_s * min(max(candidates / FULL_RATE_CANDIDATES, 1.0), MAX_PERIOD_FACTOR)
    # the server ends the session of a candidate that asks too seldom, as if its process were frozen
    return min(seconds, settings.session_timeout_s / 2)


class Candidacy:
    """The candidacy of one session. `locked`: the session holds the lock."""

    def __init__(self, conn: Connection[Any], settings: LeaderSettings, pauses: Pauses) -> None:
        self.locked = False
        self._conn = conn
        self._settings = settings
        self._pauses = pauses
        self._contested = False  # a session that does not lead holds the lock

    def wait(self) -> bool:
        """Wait until this candidate may begin a term; return False if it was stopped."""
        tries, recount, seconds = 0, 0, 0.0
        while not self._pauses.stopped:
            if self._try_to_stand():
                return True
            if tries == recount:
                seconds = try_period_s(self._settings, leadership.count_candidates(self._conn))
                recount += min(max(tries, 1), RECOUNT)
            tries += 1
            self._pauses.pause(self._conn, seconds, DEAF_S)
        return False

    def begin_term(self, holder: str) -> tuple[int | None, float]:
        """Begin a term for `holder`; return its number, and the seconds for which nothing may be reaped.

        The number is None where another candidate was first, or this one was stopped. Waits until the fence is free,
        because a former leader may still be in its last transaction.
        """
        while not self._pauses.stopped:
            try:
                if not self._vacant():
                    break
                with self._conn.transaction():
                    first = leadership.fence(self._conn, None) is None
                    if not self._vacant():
                        break
                    return leadership.elect(self._conn, holder, locked=self.locked, first=first)
            except NotLeading:
                self._pauses.pause(self._conn, 0.2)
        return None, 0.0

    def _try_to_stand(self) -> bool:
        """Try to get the lock, and check whether this candidate may begin a term."""
        conn = self._conn
        self.locked = not is_shared(conn) and leadership.try_lead(conn)
        if not (self.locked or is_shared(conn)):
            # contested twice in a row: after one time, another candidate may just have got the lock
            before, self._contested = self._contested, leadership.is_lock_contested(conn, TERM_GONE_S)
            return before and self._contested
        if vacant := self._vacant():
            return vacant
        if self.locked:  # the current leader leads without the lock
            leadership.unlock(conn)
            self.locked = False
        return False

    def _vacant(self) -> bool:
        """Check whether the last term has ended."""
        gone_s = self._settings.session_timeout_s if is_shared(self._conn) else TERM_GONE_S
        return leadership.is_vacant(self._conn, gone_s, locked=self.locked)
