"""Run the leader's duties so that one stops no other: do in pieces what fails, and skip bad rows for a while.

Invariant: an exception leaves `run` only if it concerns the session, or means that another process leads.

A duty that fails is done in pieces. Rows that fail alone while others succeed are set aside. A duty of which no piece
succeeds backs off.
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
from pgsched.db.queries.leader.set_aside import FailedRow
from pgsched.errors import DatabaseReadOnly, DatabaseUnreachable
from pgsched.leader.isolation.set_aside import SESSION, WHOLE, SetAside

logger = log.get("leader")
FIRST_S, MOST_S = 1.0, 60.0  # back-off of a duty that fails: at first, and at most
CONFLICTS = 3  # conflicts in a row that are taken for chance: a locked row, a deadlock
FEW = 10  # rows that may be at fault although no other row could be tried
PIECES_S = 1.0  # time for the pieces of one duty in one round
STEP = 8  # after a piece that fails, the next is an eighth as large; after one that succeeds, eight times as large
Leading = Callable[[], AbstractContextManager[Connection[Any]]]


@dataclass(frozen=True, slots=True)
class Pieces:
    """How the rows of a duty are done a few at a time.

    `name`: under which its rows are set aside.
    `most`: rows of one piece at most.
    `work(n)`: do the next `n` rows that are not set aside, in a transaction of its own. Returns how many succeeded, and
        whether there may be more.
    `first()`: return the row that `work(1)` begins with.
    `at_start()`: whether that is the first row of all; after the last row, `work` begins anew.
    """

    name: str
    most: int
    work: Callable[[int], tuple[int, bool]]
    first: Callable[[], str | None]
    at_start: Callable[[], bool] = lambda: True


@dataclass
class DutyState:
    """The record of one duty's failures.

    `failures`: failures in a row.
    `conflicts`: conflicts in a row that were taken for chance.
    `unexplained`: times in a row that the duty failed and its pieces did not.
    `not_before`: monotonic instant before which the duty is not tried again.
    `logged`: the error that was logged with its traceback.
    `has_succeeded`: the duty has succeeded at least once in this term.
    """

    failures: int = 0
    conflicts: int = 0
    unexplained: int = 0
    not_before: float = -math.inf
    logged: str = ""
    has_succeeded: bool = False


class DutyGuard:
    """The guard of the duties of one term.

    `session_lost_in`: the duty in which the session was lost, the error, and whether the duty had succeeded before
    in this term.
    """

    def __init__(self, conn: Connection[Any], leading: Leading, set_aside: SetAside) -> None:
        self._conn = conn
        self._leading = leading
        self._set_aside = set_aside
        self._states: dict[str, DutyState] = {}
        self._count = 0  # rows that were set aside so far
        self._sizes: dict[str, int] = {}  # by name of pieces that ran out of time: the size to go on with
        self.session_lost_in: tuple[str, str, bool] | None = None

    def run(self, name: str, duty: Callable[[], int], pieces: Sequence[Pieces] = ()) -> int:
        """Do a duty; return how much it did, or 0 while it backs off."""
        try:
            return self._run(name, duty, pieces)
        except Exception as error:
            # of two nested duties, the inner one is noted
            if self.session_lost_in is None and is_session_lost(self._conn, error):
                self.session_lost_in = name, log.redact(first_line(error)), self._states[name].has_succeeded
            raise

    def _run(self, name: str, duty: Callable[[], int], pieces: Sequence[Pieces]) -> int:
        state = self._states.setdefault(name, DutyState())
        began = time.monotonic()
        session = self._set_aside.entry(name, SESSION)
        if began < state.not_before or (session is not None and session.tries > 1 and began < session.until):
            return 0
        over = [(piece.name, self._set_aside.rows_to_retry(piece.name)) for piece in pieces]
        try:
            if any(piece.name in self._sizes for piece in pieces):
                done, healed = self._in_pieces(pieces)
                if not healed:
                    raise RuntimeError(state.logged or "it goes through in no piece")
            else:
                done = duty()
            self._note_success(name, state, over)
        except Exception as error:
            if ends_session(self._conn, error):
                raise
            done = self._recover(name, state, error, pieces)
        return done

    def pause_s(self) -> float:
        """Return the seconds until a duty or a row that failed is tried again; infinite if there is none."""
        now = time.monotonic()
        waits = [state.not_before - now for state in self._states.values() if state.not_before > now]
        return min([*waits, self._set_aside.next_s()])

    def set_aside(
        self, name: str, rows: Iterable[tuple[str, str]], *, proven: bool, doubled_to_s: float | None = None
    ) -> None:
        """Skip these rows (each with its error) for a while.

        `proven`: other rows succeeded.
        `doubled_to_s`: see SetAside.delay_s.
        """
        bad = [
            FailedRow(row, error, self._set_aside.delay_s(name, row, proven=proven, doubled_to_s=doubled_to_s))
            for row, error in rows
        ]
        self._count += len(bad)
        for one in bad[:FEW]:
            logger.error("a row is set aside", duty=name, row=one.row_id, error=one.error, again_in_s=one.in_s)
        if len(bad) > FEW:
            logger.error("further rows are set aside", duty=name, count=len(bad) - FEW)
        self._save_set_aside(name, bad)

    def _recover(self, name: str, state: DutyState, error: Exception, pieces: Sequence[Pieces]) -> int:
        """Do at once the parts of a failed duty that can be done; return how much that was."""
        if is_conflict(error) and state.conflicts < CONFLICTS:
            state.conflicts += 1
            logger.warning("conflict, trying again", duty=name, error=first_line(error))
            return 0
        before = self._count
        done, healed = self._in_pieces(pieces) if pieces else (0, False)
        if healed and self._count == before:  # no row is at fault: chance, or work outside of the pieces
            state.unexplained += 1
            logger.warning("a duty failed, and went through in pieces", duty=name, error=log.redact(first_line(error)))
        if not healed or state.unexplained > CONFLICTS:
            self._failed(name, state, error)
        return done

    def _failed(self, name: str, state: DutyState, error: Exception) -> None:
        """Log that the duty failed as a whole, and let it back off."""
        text = log.redact(first_line(error))
        state.failures += 1
        delay_s = min(MOST_S, FIRST_S * 2.0 ** min(state.failures - 1, 10))
        state.not_before = time.monotonic() + delay_s
        logger.error("a duty failed", duty=name, error=text, retry_in_s=delay_s, exc_info=text != state.logged)
        state.logged = text
        self._save_set_aside(name, [FailedRow(WHOLE, text, delay_s)])

    def _save_set_aside(self, name: str, bad: Sequence[FailedRow]) -> None:
        """Set rows aside in memory, and in the database if possible."""
        self._set_aside.add(name, bad)  # in memory first: the note may fail
        try:
            with self._leading() as conn:
                self._set_aside.save(conn, name, bad)
        except Exception as refusal:
            if ends_session(self._conn, refusal):
                raise
            logger.warning("what is set aside could not be written down", duty=name, error=first_line(refusal))

    def _note_success(self, name: str, state: DutyState, over: Sequence[tuple[str, list[str]]]) -> None:
        """Note that the duty succeeded, and release the rows whose time to be tried again had come."""
        if state.failures:
            logger.info("a duty works again", duty=name)
        state.failures, state.conflicts, state.unexplained, state.logged = 0, 0, 0, ""
        state.has_succeeded = True
        own = [row for row in (WHOLE, SESSION) if self._set_aside.entry(name, row) is not None]
        gone = [(duty, [row for row in rows if self._is_retry_due(duty, row)]) for duty, rows in [*over, (name, own)]]
        if any(rows for _, rows in gone):
            with self._leading() as conn:
                for duty, rows in gone:
                    if rows:
                        self._set_aside.drop(conn, duty, rows)

    def _is_retry_due(self, duty: str, row: str) -> bool:
        """Check whether the time of a row to be tried again had come."""
        entry = self._set_aside.entry(duty, row)
        return entry is not None and (row in (WHOLE, SESSION) or entry.until <= time.monotonic())

    def _in_pieces(self, pieces: Sequence[Pieces]) -> tuple[int, bool]:
        """Do the pieces; return how much was done, and whether all succeeded but the rows that are set aside now."""
        found = [self._run_pieces(piece) for piece in pieces]
        return sum(done for done, _ in found), all(healed for _, healed in found)

    def _run_pieces(self, piece: Pieces) -> tuple[int, bool]:
        """Do pieces of one kind: smaller ones after a failure, larger ones after a success.

        Returns how much was done, and whether all succeeded but the rows that are set aside now.
        """
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
                if size == 1 and not self._suspect_first(piece, suspects, error):
                    break
                size = max(1, size // STEP)
            else:
                done, finished = done + went, not more and not skipped
                skipped = skipped and more  # after the last row come those that were skipped at the start
                size = min(piece.most, size * STEP)
            if time.monotonic() > until and not finished:
                if size < piece.most:
                    self._sizes[piece.name] = size
                break
        if suspects and (done or finished):
            self.set_aside(piece.name, suspects.items(), proven=done > 0)
            return done, True
        for row in suspects:
            self._set_aside.release_suspect(piece.name, row)
        return done, finished or done > 0 or not failed

    def _suspect_first(self, piece: Pieces, suspects: dict[str, str], error: Exception) -> bool:
        """Suspect the row with which a piece begins, and that failed; return False if it cannot be skipped."""
        row = self._first(piece)
        if row is None or row in suspects or len(suspects) >= FEW:
            return False
        suspects[row] = log.redact(first_line(error))
        self._set_aside.suspect(piece.name, row, suspects[row])
        return True

    def _first(self, piece: Pieces) -> str | None:
        """Return the row with which a piece begins, None if that cannot be found out."""
        try:
            return piece.first()
        except Exception as error:
            if ends_session(self._conn, error):
                raise
            return None


def ends_session(conn: Connection[Any], error: BaseException) -> bool:
    """Check whether an error concerns the session or leadership, so that no duty can be done."""
    if conn.closed or isinstance(error, NotLeading | DatabaseUnreachable | DatabaseReadOnly):
        return True
    lost = (Reaction.RECONNECT, Reaction.LOST, Reaction.STANDBY)
    return isinstance(error, DatabaseError) and classify(error) in lost


def is_session_lost(conn: Connection[Any], error: BaseException) -> bool:
    """Check whether the session ended with this error, be it by the server, its operator, a crash or the network."""
    if isinstance(error, NotLeading):
        return False
    lost = (Reaction.RECONNECT, Reaction.LOST)
    return conn.closed or (isinstance(error, DatabaseError) and classify(error) in lost)


def is_conflict(error: BaseException) -> bool:
    """Check whether another transaction was in the way."""
    if not isinstance(error, DatabaseError) or error.sqlstate is None:
        return False
    return error.sqlstate.startswith("40") or error.sqlstate == "55P03" or ticks.is_slot_taken(error)
