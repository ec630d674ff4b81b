"""What one leader does without for a while, in memory, and in `pgsched.set_aside` for people and the next leader.

Invariant: a row is set aside for minutes only where others of its duty went through in the same round. One that nothing
can be compared with waits for a minute at most, so that what the environment did heals soon.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import set_aside
from pgsched.db.queries.leader.set_aside import Bad

PROVEN_S = (60.0, 300.0, 1800.0)  # others went through: after one, five and thirty minutes
UNPROVEN_MOST_S = 60.0  # nothing else was there to be tried: one second, then twice as long each time
JOB_MOST_S = 300.0
UNHEARD_S = 60.0
IN_A_ROW_S = 600.0  # a session lost later than this after the last one counts as the first; as in set_aside_session
WHOLE = ""  # stands for the duty itself
SESSION = "session"  # the leader lost its session in it


@dataclass
class Entry:
    """`until`: monotonic; from then on the row is tried again, and forgotten if it goes through."""

    error: str
    tries: int = 0
    until: float = math.inf


class SetAside:
    """By duty and row."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Entry]] = {}

    def load(self, conn: Connection[Any]) -> None:
        """Take over what the leader before has found."""
        now = time.monotonic()
        for row in set_aside.load(conn):
            self._of(row.duty)[row.row_id] = Entry(row.error, row.tries, now + row.in_s)

    def ids(self, duty: str) -> list[str]:
        """The rows that the duty does without now."""
        entries = self._entries.get(duty)
        if not entries:
            return []
        now = time.monotonic()
        return [row for row, entry in entries.items() if row not in (WHOLE, SESSION) and entry.until > now]

    def numbers(self, duty: str) -> list[int]:
        """The same, of a duty whose rows have numbers."""
        return [int(row) for row in self.ids(duty)]

    def entry(self, duty: str, row: str) -> Entry | None:
        """What is known of a row."""
        return self._entries.get(duty, {}).get(row)

    def suspect(self, duty: str, row: str, error: str) -> None:
        """Do without a row until it is known whether others go through."""
        entry = self._of(duty).setdefault(row, Entry(error))
        entry.error, entry.until = error, math.inf

    def acquit(self, duty: str, row: str) -> None:
        """A suspect is not at fault as far as is known: it is tried again with the others."""
        entry = self._of(duty).get(row)
        if entry is not None and entry.tries == 0:
            del self._entries[duty][row]
        elif entry is not None:
            entry.until = time.monotonic()

    def put(self, duty: str, bad: Sequence[Bad]) -> None:
        """Set rows aside. It holds for this leader whether it can be written down (`note`) or not."""
        now = time.monotonic()
        for one in bad:
            entry = self._of(duty).setdefault(one.row_id, Entry(one.error))
            entry.error, entry.until, entry.tries = one.error, now + one.in_s, entry.tries + 1

    def note(self, conn: Connection[Any], duty: str, bad: Sequence[Bad]) -> None:
        """Write that down, in the caller's transaction."""
        for row, tries in set_aside.note(conn, duty, bad).items():
            self._of(duty)[row].tries = tries

    def delay_s(self, duty: str, row: str, *, proven: bool, doubled_to_s: float | None = None) -> float:
        """For how long a row is set aside now. `proven`: others went through; `doubled_to_s`: from one second on up to
        this, even so."""
        entry = self.entry(duty, row)
        tries = 0 if entry is None else entry.tries
        if proven and doubled_to_s is None:
            return PROVEN_S[min(tries, len(PROVEN_S) - 1)]
        most_s = UNPROVEN_MOST_S if doubled_to_s is None or not proven else doubled_to_s
        return min(most_s, 2.0 ** min(tries, 20))

    def over(self, duty: str) -> list[str]:
        """The rows that were tried again by now, as their time had come."""
        entries = self._entries.get(duty)
        if not entries:
            return []
        now = time.monotonic()
        return [row for row, entry in entries.items() if entry.until <= now]

    def drop(self, conn: Connection[Any], duty: str, rows: list[str]) -> None:
        """They went through, or are gone; in the caller's transaction."""
        set_aside.drop(conn, duty, rows)
        for row in rows:
            self._entries.get(duty, {}).pop(row, None)

    def sweep(self, conn: Connection[Any]) -> None:
        """Drop what was not heard of for a while after its time had come: there is nothing left to do with it."""
        now = time.monotonic()
        for duty, entries in self._entries.items():
            gone = [row for row, entry in entries.items() if entry.until < now - kept_s(row)]
            if gone:
                self.drop(conn, duty, gone)

    def next_s(self) -> float:
        """Seconds until something is tried again, infinite where nothing is set aside."""
        now = time.monotonic()
        waits = (entry.until - now for entries in self._entries.values() for entry in entries.values())
        return min((wait for wait in waits if wait > 0), default=math.inf)

    def _of(self, duty: str) -> dict[str, Entry]:
        return self._entries.setdefault(duty, {})


def kept_s(row: str) -> float:
    """Seconds for which a row is kept after its time had come, if it is not heard of."""
    return IN_A_ROW_S if row == SESSION else UNHEARD_S
