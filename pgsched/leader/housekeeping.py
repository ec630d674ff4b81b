"""What the leader does seldom: it counts, looks for incidents, deletes what nothing keeps, and tidies up.

All of it happens in rounds that there are anyway, in fenced transactions, and not in a lull (see periodic.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import leadership, limits
from pgsched.db.queries.leader.retention import WORKERS_KEPT_S
from pgsched.leader import rollups
from pgsched.leader.alerting.incidents import EVERY_S, Watch
from pgsched.leader.declarations import work as withdraw
from pgsched.leader.dependents import Sweep
from pgsched.leader.isolation import pieces
from pgsched.leader.isolation.guard import DutyGuard, Pieces
from pgsched.leader.isolation.set_aside import SetAside
from pgsched.leader.metrics import LeaderMeter
from pgsched.leader.pruner import REST, Pruner
from pgsched.leader.timing.periodic import Timetable, breather, clear_notifications

LONGEST_PAUSE_S = 2.5  # how late a lost notification may be noticed
WAITING_PAUSE_S = 1.0
BATCH = 5000
CLEAR_EVERY_S = 60.0


class Housekeeping:
    """Of one term on one connection. `timetable`: when each of its duties is due."""

    def __init__(
        self, conn: Connection[Any], term: int, settings: LeaderSettings, reap_from: float, *, locked: bool
    ) -> None:
        self.conn = conn
        self.locked = locked
        self.term = term
        self.settings = settings
        self.counted: LeaderMeter | None = None
        self.timetable = Timetable(reap_from, settings.prune_every_s)
        self.watch = Watch()
        self._sweep = Sweep()
        self._pruner = Pruner()
        self._counting = rollups.Counting()
        self.aside = SetAside()
        self.guard = DutyGuard(conn, self.leading, self.aside)
        self._site = pieces.Site(conn, self.leading, self.aside, self.guard)
        self._pieces: dict[str, Sequence[Pieces]] = {}

    def keep(self, now: float, *, count: bool, ended: bool, trusted: bool) -> None:
        """Do what it is time for. `ended`: something may have to be counted; `trusted`: the clock has not jumped."""
        timetable = self.timetable
        if count and timetable.counting.is_due(now, lull=timetable.lull):
            timetable.counting.within(now, self.settings.count_every_s, LONGEST_PAUSE_S)  # first, as below
            self._do("figures", lambda: self._count(now, ended))
        if trusted and timetable.watching.is_due(now, lull=timetable.lull):
            timetable.watching.within(now, EVERY_S, LONGEST_PAUSE_S)  # first, as below
            self._do("alerts", self._watch)
        if timetable.pruning.is_due(now, lull=timetable.lull):
            # first: a prune that fails must not hold up every round
            timetable.pruning.within(now, self.settings.prune_every_s, LONGEST_PAUSE_S)
            self._do("pruning", self._prune)
            if not self._pruner.more:
                self._do("tidying", self._tidy)
        if timetable.withdrawing.is_due(now, lull=timetable.lull):
            timetable.withdrawing.within(now, self.settings.prune_every_s, LONGEST_PAUSE_S)  # first, as above
            self._do("declarations", lambda: withdraw(self.conn, self.leading, self.settings.withdraw_after_s))
        if timetable.clearing.is_due(now, lull=timetable.lull):
            timetable.clearing.within(now, CLEAR_EVERY_S, CLEAR_EVERY_S)  # first, as above
            self._do("notifications", lambda: clear_notifications(self.conn))

    def _do(self, name: str, duty: Callable[[], int]) -> int:
        """What one duty did; one that fails must not stop the others."""
        return self.guard.run(name, duty, self._pieces.get(name, ()))

    @contextmanager
    def leading(self) -> Iterator[Connection[Any]]:
        """A transaction that begins by proving leadership."""
        with self.conn.transaction():
            leadership.fence(self.conn, self.term)
            yield self.conn
            if is_shared(self.conn) or not self.locked:  # a long one must not look like the end of the term
                leadership.seen(self.conn, self.term)

    def _count(self, now: float, ended: bool) -> int:
        if not (ended or self._counting.wants(now)):
            return 0
        began = time.monotonic()
        counted = self._counting.work(self.conn, self.leading, aside=self.aside.numbers(pieces.FIGURES))
        if self._counting.waits:
            self.timetable.counting.exactly(breather(began) if counted else now + WAITING_PAUSE_S)
        return 0

    def _watch(self) -> int:
        began = time.monotonic()
        again_s = self.watch.work(self.conn, self.leading, leads=True)
        self.timetable.watching.within(
            began, max(breather(began) - began, again_s), LONGEST_PAUSE_S if again_s else 0.0
        )
        return 0

    def _prune(self) -> int:
        began = time.monotonic()
        if self.aside.over(pieces.PRUNING):
            self._pruner.again()
        gone = pieces.prune(self._site, self._pruner, self.settings.prune_batch)
        if self.counted is not None:
            self.counted.pruned(gone)
        if self._pruner.more:
            self.timetable.pruning.exactly(breather(began, REST))
        return gone

    def _tidy(self) -> int:
        began = time.monotonic()
        keep_workers_s = max(WORKERS_KEPT_S, 2 * self.settings.withdraw_after_s)
        with self.leading() as conn:
            if self._pruner.tidy(conn, BATCH, keep_workers_s) >= BATCH:
                self.timetable.pruning.exactly(breather(began))
            self._sweep.work(conn, BATCH)
            limits.forget(conn)
            self.aside.sweep(conn)
        return 0
