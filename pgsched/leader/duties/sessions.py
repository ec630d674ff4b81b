"""Duties about what programs coordinate with: end sessions that were not renewed, and delete unused names.

Invariant: a session that cannot be ended, because somebody has locked what it had, keeps no other from being ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import sessions
from pgsched.leader.duty import BATCH, PeriodicDuty, Round
from pgsched.leader.isolation import pieces
from pgsched.leader.pruner import PAUSE_FACTOR
from pgsched.leader.term import Term
from pgsched.leader.timing.periodic import Periodic, next_batch_at

SWEEP_EVERY_S = 1.0
SWEEP_SELDOM_S = 5.0  # while there are no sessions; with LONGEST_PAUSE_S earlier, no round takes place for it
SWEEP_BATCH = 100
LOOK_SHARE = 0.005  # a search among very many sessions takes at most this share of the time
NAMES_EVERY_S = 3600.0  # between two passes over all names

Prune = Callable[[Connection[Any], str, int], str | None]


class SessionsDuty(PeriodicDuty):
    """The duty that ends sessions which were not renewed, and gives on what they had.

    Whoever waits for such a lock looks by itself. The duty is for what nobody waits for.
    """

    name = "sessions"
    needs_clock = True

    def __init__(self, term: Term) -> None:
        super().__init__(term, Periodic(0.0, SWEEP_SELDOM_S))
        self._after = 0

    def run(self, this_round: Round) -> int:
        """End the next sessions that are over; return how many were dealt with."""
        began = time.monotonic()
        set_aside_ids = self.term.set_aside.skipped_ids(pieces.SESSIONS)
        found = sessions.find_sessions_over(self.term.conn, self._after, SWEEP_BATCH, set_aside_ids)
        took_s = time.monotonic() - began
        if found.some:
            every_s = min(max(SWEEP_EVERY_S, took_s / LOOK_SHARE), SWEEP_SELDOM_S)
            self.period.set_due_within(began, every_s, SWEEP_EVERY_S / 2)
        more = len(found.ids) == SWEEP_BATCH
        self._after = found.ids[-1] if more else 0
        done = self._end(found.ids) if found.ids else 0
        if more:
            self.period.set_due_at(next_batch_at(began))
        return done

    def _end(self, ids: Sequence[int]) -> int:
        """End these sessions, in pieces if that fails as a whole; return how many were dealt with."""
        parts = pieces.rows_of_batch(self.term, pieces.SESSIONS, ids, self._end_some)
        return self.term.guard.run(pieces.SESSIONS, lambda: self._end_some(ids), parts)

    def _end_some(self, ids: Sequence[int]) -> int:
        with self.term.leading() as conn:
            return sessions.end_sessions(conn, ids)


class NamesPass:
    """A pass over all names of one kind, some at a time. `prune`: deletes the unused ones of the next names."""

    def __init__(self, prune: Prune) -> None:
        self._prune = prune
        self._after = ""

    @property
    def is_under_way(self) -> bool:
        """Whether there are names that were not read yet."""
        return self._after != ""

    def work(self, conn: Connection[Any], n: int) -> None:
        """Read the next `n` names, in the caller's transaction."""
        self._after = self._prune(conn, self._after, n) or ""


class NamesDuty(PeriodicDuty):
    """The duty that deletes names of locks, and roots of the store, that nobody has used for 30 days."""

    name = "names"
    needs_clock = True

    def __init__(self, term: Term) -> None:
        every_s = term.settings.prune_every_s
        super().__init__(term, Periodic(time.monotonic() + every_s, NAMES_EVERY_S))
        self._passes = [NamesPass(sessions.prune_locks), NamesPass(sessions.prune_roots)]

    def run(self, this_round: Round) -> int:
        """Read the next names of each kind, and delete the unused ones; return 0."""
        began = time.monotonic()
        due = [names for names in self._passes if names.is_under_way] or self._passes
        with self.term.leading() as conn:
            for names in due:
                names.work(conn, BATCH)
        if any(names.is_under_way for names in self._passes):
            self.period.set_due_at(next_batch_at(began, PAUSE_FACTOR))
        return 0
