"""Rows that the leader skips for a while: in memory, and in `pgsched.set_aside` for people and the next leader.

Invariant: a row is set aside for minutes only where other rows of its duty succeeded in the same round. A row that
cannot be compared with others waits a minute at most, so that faults of the environment heal soon.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import set_aside
from pgsched.db.queries.leader.set_aside import FailedRow

PROVEN_S = (60.0, 300.0, 1800.0)  # where other rows succeeded: one, five and thirty minutes
UNPROVEN_MOST_S = 60.0  # where no other row could be tried: one second, then twice as long each time, up to this
JOB_MOST_S = 300.0  # for jobs of the tick: one second, then twice as long each time, up to this
UNHEARD_S = 60.0  # a row is kept for this long after its time had come, if it is not seen again
IN_A_ROW_S = 600.0  # a session lost later than this after the last one counts as the first; as in set_aside_session
WHOLE = ""  # row id that stands for the duty itself
SESSION = "session"  # row id: the leader lost its session in the duty


@dataclass
class Entry:
    """One row that is set aside.

    `until`: monotonic instant from which the row is tried again; it is forgotten if it succeeds.
    """

    error: str
    tries: int = 0
    until: float = math.inf


class SetAside:
    """All that one leader has set aside, by duty and row."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Entry]] = {}

    def load(self, conn: Connection[Any]) -> None:
        """Take over the rows that former leaders set aside."""
        now = time.monotonic()
        for row in set_aside.list_set_aside(conn):
            self._of(row.duty)[row.row_id] = Entry(row.error, row.tries, now + row.in_s)

    def skipped_rows(self, duty: str) -> list[str]:
        """Return the rows that the duty skips now."""
        entries = self._entries.get(duty)
        if not entries:
            return []
        now = time.monotonic()
        return [row for row, entry in entries.items() if row not in (WHOLE, SESSION) and entry.until > now]

    def skipped_ids(self, duty: str) -> list[int]:
        """Return the same rows as numbers."""
        return [int(row) for row in self.skipped_rows(duty)]

    def entry(self, duty: str, row: str) -> Entry | None:
        """Return the entry of a row, None if there is none."""
        return self._entries.get(duty, {}).get(row)

    def suspect(self, duty: str, row: str, error: str) -> None:
        """Skip a row until it is known whether other rows succeed."""
        entry = self._of(duty).setdefault(row, Entry(error))
        entry.error, entry.until = error, math.inf

    def release_suspect(self, duty: str, row: str) -> None:
        """Release a suspect that is not known to be at fault: it is tried again with the others."""
        entry = self._of(duty).get(row)
        if entry is not None and entry.tries == 0:
            del self._entries[duty][row]
        elif entry is not None:
            entry.until = time.monotonic()

    def add(self, duty: str, bad: Sequence[FailedRow]) -> None:
        """Set rows aside in this leader's memory, which counts even if `save` fails."""
        now = time.monotonic()
        for one in bad:
            entry = self._of(duty).setdefault(one.row_id, Entry(one.error))
            entry.error, entry.until, entry.tries = one.error, now + one.in_s, entry.tries + 1

    def save(self, conn: Connection[Any], duty: str, bad: Sequence[FailedRow]) -> None:
        """Write these rows down, in the caller's transaction."""
        for row, tries in set_aside.set_aside_rows(conn, duty, bad).items():
            self._of(duty)[row].tries = tries

    def delay_s(self, duty: str, row: str, *, proven: bool, doubled_to_s: float | None = None) -> float:
        """Return the seconds for which a row is set aside now.

        `proven`: other rows succeeded.
        `doubled_to_s`: begin at one second and double up to this, also where it is proven.
        """
        entry = self.entry(duty, row)
        tries = 0 if entry is None else entry.tries
        if proven and doubled_to_s is None:
            return PROVEN_S[min(tries, len(PROVEN_S) - 1)]
        most_s = UNPROVEN_MOST_S if doubled_to_s is None or not proven else doubled_to_s
        return min(most_s, 2.0 ** min(tries, 20))

    def rows_to_retry(self, duty: str) -> list[str]:
        """Return the rows whose time to be tried again has come."""
        entries = self._entries.get(duty)
        if not entries:
            return []
        now = time.monotonic()
        return [row for row, entry in entries.items() if entry.until <= now]

    def drop(self, conn: Connection[Any], duty: str, rows: list[str]) -> None:
        """Forget rows that succeeded or are gone, in the caller's transaction."""
        set_aside.drop(conn, duty, rows)
        for row in rows:
            self._entries.get(duty, {}).pop(row, None)

    def sweep(self, conn: Connection[Any]) -> None:
        """Forget rows that were not seen for a while after their time had come, in the caller's transaction."""
        now = time.monotonic()
        for duty, entries in self._entries.items():
            gone = [row for row, entry in entries.items() if entry.until < now - retention_s(row)]
            if gone:
                self.drop(conn, duty, gone)

    def next_s(self) -> float:
        """Return the seconds until a row is tried again, infinite where none is set aside."""
        now = time.monotonic()
        waits = (entry.until - now for entries in self._entries.values() for entry in entries.values())
        return min((wait for wait in waits if wait > 0), default=math.inf)

    def _of(self, duty: str) -> dict[str, Entry]:
        return self._entries.setdefault(duty, {})


def retention_s(row: str) -> float:
    """Return the seconds for which a row is kept after its time had come, if it is not seen again."""
    return IN_A_ROW_S if row == SESSION else UNHEARD_S
