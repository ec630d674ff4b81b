"""Runs the leader's duties so that what one of them fails with stops no other.

Invariant: no exception leaves `run` but one that is about the session, or says that another leads. A duty that fails is
done in pieces; rows that fail alone while others go through are set aside. One that goes through in no piece backs off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import Reaction, classify, first_line
from pgsched.db.queries.leader import ticks
from pgsched.db.queries.leader.leadership import NotLeading
from pgsched.db.queries.leader.set_aside import Bad
from pgsched.errors import DatabaseReadOnly, DatabaseUnreachable
from pgsched.leader.isolation.set_aside import SESSION, WHOLE, SetAside

logger = log.get("leader")
FIRST_S, MOST_S = 1.0, 60.0
CONFLICTS = 3  # in a row that are taken for chance: a lock that somebody holds, a deadlock
FEW = 10  # rows that may be at fault although nothing else was there to be tried
PIECES_S = 1.0  # for the pieces of one duty in one round
STEP = 8  # a piece that fails is followed by one of an eighth, one that goes through by one that is as much larger
Leading = Callable[[], AbstractContextManager[Connection[Any]]]


@dataclass(frozen=True, slots=True)
class Pieces:
    """How the rows of a duty are done a few at a time. `name`: under which its rows are set aside; `most`: rows of one
    piece. `work(n)`: the next `n` rows that are not set aside, in a transaction of its own; returns how many went
    through, and whether there may be more. `first()`: the row that `work(1)` begins with. `at_start()`: is it the first
    row of all? Behind the last one, `work` begins anew."""

    name: str
    most: int
    work: Callable[[int], tuple[int, bool]]
    first: Callable[[], str | None]
    at_start: Callable[[], bool] = lambda: True


@dataclass
class State:
    """How a duty fares: failures in a row, and the monotonic instant before which it is not tried again. `unexplained`:
    times in a row that it failed and its pieces did not; `logged`: the error that was logged with its traceback;
    `went_through`: at least once in this term."""

    failures: int = 0
    conflicts: int = 0
    unexplained: int = 0
    not_before: float = -math.inf
    logged: str = ""
    went_through: bool = False


class DutyGuard:
    """The duties of one term. `cost`: the duty that was being done when the session was lost, the error, and whether
    the duty had gone through in this term before."""

    def __init__(self, conn: Connection[Any], leading: Leading, set_aside: SetAside) -> None:
        self._conn = conn
        self._leading = leading
        self._set_aside = set_aside
        self._states: dict[str, State] = {}
        self._count = 0  # rows that were set aside
        self._sizes: dict[str, int] = {}  # of pieces that did not go through in the time that there was
        self.cost: tuple[str, str, bool] | None = None

    def run(self, name: str, duty: Callable[[], int], pieces: Sequence[Pieces] = ()) -> int:
        """What the duty did; 0 where it is not its time, or it did nothing."""
        try:
            return self._run(name, duty, pieces)
        except Exception as error:
            if self.cost is None and is_session_lost(self._conn, error):  # the inner one of two duties is noted
                self.cost = name, log.redact(first_line(error)), self._states[name].went_through
            raise

    def _run(self, name: str, duty: Callable[[], int], pieces: Sequence[Pieces]) -> int:
        state = self._states.setdefault(name, State())
        began = time.monotonic()
        session = self._set_aside.entry(name, SESSION)
        if began < state.not_before or (session is not None and session.tries > 1 and began < session.until):
            return 0
        over = [(piece.name, self._set_aside.over(piece.name)) for piece in pieces]
        try:
            if any(piece.name in self._sizes for piece in pieces):
                done, healed = self._in_pieces(pieces)
                if not healed:
                    raise RuntimeError(state.logged or "it goes through in no piece")
            else:
                done = duty()
            self._forget(name, state, over)
        except Exception as error:
            if ends_session(self._conn, error):
                raise
            done = self._recover(name, state, error, pieces)
        return done

    def pause_s(self) -> float:
        """Seconds until a duty that backs off, or a row that is set aside, is tried again; infinite: there is none."""
        now = time.monotonic()
        waits = [state.not_before - now for state in self._states.values() if state.not_before > now]
        return min([*waits, self._set_aside.next_s()])

    def set_aside(
        self, name: str, rows: Iterable[tuple[str, str]], *, proven: bool, doubled_to_s: float | None = None
    ) -> None:
        """Do without these rows (with their errors) for a while. `proven`: others went through."""
        bad = [
            Bad(row, error, self._set_aside.delay_s(name, row, proven=proven, doubled_to_s=doubled_to_s))
            for row, error in rows
        ]
        self._count += len(bad)
        for one in bad[:FEW]:
            logger.error("a row is set aside", duty=name, row=one.row_id, error=one.error, again_in_s=one.in_s)
        if len(bad) > FEW:
            logger.error("further rows are set aside", duty=name, count=len(bad) - FEW)
        self._put(name, bad)

    def _recover(self, name: str, state: State, error: Exception, pieces: Sequence[Pieces]) -> int:
        """Try again at once what can be done of a duty that has failed; returns how much that was."""
        if is_conflict(error) and state.conflicts < CONFLICTS:
            state.conflicts += 1
            logger.warning("conflict, trying again", duty=name, error=first_line(error))
            return 0
        before = self._count
        done, healed = self._in_pieces(pieces) if pieces else (0, False)
        if healed and self._count == before:  # of no row: it may be chance, or what the pieces leave out
            state.unexplained += 1
            logger.warning("a duty failed, and went through in pieces", duty=name, error=log.redact(first_line(error)))
        if not healed or state.unexplained > CONFLICTS:
            self._failed(name, state, error)
        return done

    def _failed(self, name: str, state: State, error: Exception) -> None:
        text = log.redact(first_line(error))
        state.failures += 1
        delay_s = min(MOST_S, FIRST_S * 2.0 ** min(state.failures - 1, 10))
        state.not_before = time.monotonic() + delay_s
        logger.error("a duty failed", duty=name, error=text, retry_in_s=delay_s, exc_info=text != state.logged)
        state.logged = text
        self._put(name, [Bad(WHOLE, text, delay_s)])

    def _put(self, name: str, bad: Sequence[Bad]) -> None:
        self._set_aside.put(name, bad)  # first
        try:
            with self._leading() as conn:
                self._set_aside.note(conn, name, bad)
        except Exception as refusal:
            if ends_session(self._conn, refusal):
                raise
            logger.warning("what is set aside could not be written down", duty=name, error=first_line(refusal))

    def _forget(self, name: str, state: State, over: Sequence[tuple[str, list[str]]]) -> None:
        """The duty went through, and with it the rows whose time to be tried again had come."""
        if state.failures:
            logger.info("a duty works again", duty=name)
        state.failures, state.conflicts, state.unexplained, state.logged = 0, 0, 0, ""
        state.went_through = True
        own = [row for row in (WHOLE, SESSION) if self._set_aside.entry(name, row) is not None]
        gone = [(duty, [row for row in rows if self._is_over(duty, row)]) for duty, rows in [*over, (name, own)]]
        if any(rows for _, rows in gone):
            with self._leading() as conn:
                for duty, rows in gone:
                    if rows:
                        self._set_aside.drop(conn, duty, rows)

    def _is_over(self, duty: str, row: str) -> bool:
        entry = self._set_aside.entry(duty, row)
        return entry is not None and (row in (WHOLE, SESSION) or entry.until <= time.monotonic())

    def _in_pieces(self, pieces: Sequence[Pieces]) -> tuple[int, bool]:
        """How much was done, and whether all of it went through but for rows that are set aside now."""
        found = [self._piecewise(piece) for piece in pieces]
        return sum(done for done, _ in found), all(healed for _, healed in found)

    def _piecewise(self, piece: Pieces) -> tuple[int, bool]:
        size, done, until = self._sizes.pop(piece.name, piece.most), 0, time.monotonic() + PIECES_S
        suspects: dict[str, str] = {}
        finished, failed, skipped = False, False, not piece.at_start()
        while not finished:
            try:
                went, more = piece.work(size)
            except Exception as error:
                if ends_session(self._conn, error):
                    raise
                failed = True
                row = self._first(piece) if size == 1 else None
                if size == 1 and (row is None or row in suspects or len(suspects) >= FEW):
                    break
                if row is not None:
                    suspects[row] = log.redact(first_line(error))
                    self._set_aside.suspect(piece.name, row, suspects[row])
                size = max(1, size // STEP)
            else:
                done, finished = done + went, not more and not skipped
                skipped = skipped and more  # behind the last row come those that were skipped at the start
                size = min(piece.most, size * STEP)
            if time.monotonic() > until and not finished:
                if size < piece.most:
                    self._sizes[piece.name] = size
                break
        if suspects and (done or finished):
            self.set_aside(piece.name, suspects.items(), proven=done > 0)
            return done, True
        for row in suspects:
            self._set_aside.acquit(piece.name, row)
        return done, finished or done > 0 or not failed

    def _first(self, piece: Pieces) -> str | None:
        try:
            return piece.first()
        except Exception as error:
            if ends_session(self._conn, error):
                raise
            return None


def ends_session(conn: Connection[Any], error: BaseException) -> bool:
    """Is it about the session, or about who leads, so that no duty can be done?"""
    if conn.closed or isinstance(error, NotLeading | DatabaseUnreachable | DatabaseReadOnly):
        return True
    lost = (Reaction.RECONNECT, Reaction.LOST, Reaction.STANDBY)
    return isinstance(error, DatabaseError) and classify(error) in lost


def is_session_lost(conn: Connection[Any], error: BaseException) -> bool:
    """Did the session end with this error? The cause may be the server, its operator, a crash or the network."""
    if isinstance(error, NotLeading):
        return False
    lost = (Reaction.RECONNECT, Reaction.LOST)
    return conn.closed or (isinstance(error, DatabaseError) and classify(error) in lost)


def is_conflict(error: BaseException) -> bool:
    """Was another transaction in the way?"""
    if not isinstance(error, DatabaseError) or error.sqlstate is None:
        return False
    return error.sqlstate.startswith("40") or error.sqlstate == "55P03" or ticks.slot_taken(error)
