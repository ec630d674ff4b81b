"""The leader's round: tick, admit, reap, prune, each in a transaction of its own that proves leadership first.

`perform` does what is due and says how long nothing else will be. Reaping starts one full lease after the election,
so that an outage longer than a lease does not requeue what healthy workers still run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pgsched import log
from pgsched.config import LeaderSettings
from pgsched.db import leading
from pgsched.db.connect import Connection, DatabaseError, Reaction, classify
from pgsched.leader import backfill, passed_over
from pgsched.leader.ticker import Ticked, tick

logger = log.get("leader")
T = TypeVar("T")
SEEN_EVERY_S = 1.0
LONGEST_PAUSE_S = 1.0
HELD_UP_PAUSE_S = 0.2
BATCH = 5000
PRUNE_BATCH = 2000


class Duties:
    """The duties of one term on one connection. `reap_from`: monotonic instant before which nothing is reaped."""

    def __init__(self, conn: Connection[Any], term: int, settings: LeaderSettings, reap_from: float) -> None:
        self.conn = conn
        self.term = term
        self.settings = settings
        self._reap_at = reap_from
        self._seen_at = 0.0
        self._held_up = 0
        self._backfills = backfill.Turn()
        self._prune_at = time.monotonic() + settings.prune_every_s

    def perform(self) -> float:
        """One batch of everything that is due now, so that no duty starves another; seconds until the next round."""
        now = time.monotonic()
        self._try(lambda: self._seen(now), None)
        ticked = self._try(self._tick, Ticked(0, 0, 0, more=False))
        reaped = self._try(lambda: self._reap(now), 0)
        admitted = self._try(self._admit, 0)  # after reaping: a revoked claim may be what a run waited for
        asked = self._try(self._asked, HELD_UP_PAUSE_S)
        self._try(lambda: self._prune(now), None)
        if ticked.more or max(admitted, reaped) >= BATCH or asked <= 0:
            return 0.0
        wait = leading.next_wake(self.conn)
        due = LONGEST_PAUSE_S if wait is None else wait
        # what is due although this round did nothing is locked by somebody: look again soon, but do not spin
        self._held_up = 0 if due > 0 or ticked.jobs or admitted else self._held_up + 1
        due = max(due, min(HELD_UP_PAUSE_S, 0.001 * 2 ** min(self._held_up, 10)) if self._held_up else 0.0)
        return max(0.0, min(asked, self._reap_at - time.monotonic(), due))

    def _try(self, duty: Callable[[], T], otherwise: T) -> T:
        """One duty: what it cannot do now (a locked row, a value that nobody foresaw) must not stop the others."""
        try:
            return duty()
        except DatabaseError as error:
            reaction = classify(error)
            if reaction is Reaction.RETRY:
                logger.warning("conflict, trying again", error=str(error).strip())
            elif reaction is Reaction.BUG:
                logger.error("a duty failed", error=str(error).strip())
            else:
                raise
            return otherwise

    @contextmanager
    def leading(self) -> Iterator[Connection[Any]]:
        """A transaction that begins by proving leadership."""
        with self.conn.transaction():
            leading.fence(self.conn, self.term)
            yield self.conn

    def resign(self) -> None:
        """Close the term."""
        with self.leading() as conn:
            leading.seen(conn, self.term, resign=True)

    def _seen(self, now: float) -> None:
        if now >= self._seen_at:
            self._seen_at = now + SEEN_EVERY_S
            with self.leading() as conn:
                leading.seen(conn, self.term)

    def _tick(self) -> Ticked:
        with self.leading() as conn:
            done = tick(conn, self.settings.tick_batch)
        if done.errors:
            logger.warning("jobs in error", count=done.errors)
        if done.slots:
            logger.debug("ticked", jobs=done.jobs, slots=done.slots)
        return done

    def _admit(self) -> int:
        with self.leading() as conn:
            return leading.admit(conn, BATCH)

    def _reap(self, now: float) -> int:
        if now < self._reap_at:
            return 0
        self._reap_at = now + self.settings.reap_every_s
        with self.leading() as conn:
            reaped = leading.reap(conn, BATCH, self.settings.crash_limit)
        for run in reaped:
            logger.warning("claim expired", run=run["id"], attempt=run["attempt"], crashes=run["crashes"],
                           now=run["state"])  # fmt: skip
        if len(reaped) >= BATCH:  # a fleet went down: the rest must not wait a period for every batch
            self._reap_at = now
        return len(reaped)

    def _asked(self) -> float:
        """What people asked for beside the schedule; seconds until it has to be looked at again."""
        passed, open_backfills = leading.asked(self.conn)
        if passed:
            with self.leading() as conn:
                passed_over.record(conn)
        if open_backfills:
            with self.leading() as conn:
                return 0.0 if backfill.work(conn, self._backfills) else self._backfills.pause_s()
        return LONGEST_PAUSE_S

    def _prune(self, now: float) -> None:
        if now < self._prune_at:
            return
        self._prune_at = now + self.settings.prune_every_s  # first: a prune that fails must not hold up every round
        with self.leading() as conn:
            gone = leading.prune(conn, self.settings.keep_history_s, PRUNE_BATCH)
        if gone >= PRUNE_BATCH:  # more is waiting: come back soon, but let the tick go first
            self._prune_at = now + 0.05
