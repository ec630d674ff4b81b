"""The leader's round: tick, admit, reap, prune, each in a transaction of its own that proves leadership first.

`perform` does what is due and says how long nothing else will be. Reaping starts one full lease after the election,
so that an outage longer than a lease does not requeue what healthy workers still run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pgsched import log
from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import expired_leases, leadership, limits, ticks
from pgsched.leader import admission, backfill, rollups, skipped_slots
from pgsched.leader.alerting.incidents import EVERY_S, Watch
from pgsched.leader.bisecting import isolated
from pgsched.leader.clock_step import DatabaseClock
from pgsched.leader.declarations import work as withdraw
from pgsched.leader.dependents import Sweep, Turn, resolve
from pgsched.leader.metrics import LeaderMeter
from pgsched.leader.periodic import Due
from pgsched.leader.preparation import NotAsPrepared, PreparationLead
from pgsched.leader.pruner import REST, Pruner
from pgsched.leader.reaper import LONGEST_S, LOOK_S, Asked, Found, Search
from pgsched.leader.replanning import Replanning
from pgsched.leader.stall_detector import Stall
from pgsched.leader.ticker import tick

logger = log.get("leader")
LONGEST_PAUSE_S = 2.5  # how late a lost notification may be noticed
UNHEARD_PAUSE_S = 1.0  # behind a pooler, where there are none
WAITING_PAUSE_S = 1.0
HELD_UP_PAUSE_S = 0.2
LULL_S = 0.03  # behind an instant: what the leader keeps would keep the workers from starting what is due
BATCH = 5000
SELDOM = 12  # reap periods from one look for claims to the next while no worker is silent


class Duties:
    """The duties of one term on one connection. `reap_from`: monotonic instant before which nothing is reaped."""

    def __init__(self, conn: Connection[Any], term: int, settings: LeaderSettings, reap_from: float) -> None:
        self.conn = conn
        self.term = term
        self.settings = settings
        self.counted: LeaderMeter | None = None
        self._reaping = Due(reap_from)
        self._held_up = 0
        self._lull_until = -math.inf
        self._stall = Stall()
        self.search = Search()
        self._lead = PreparationLead()
        self._backfills = backfill.Turn()
        self._sweep = Sweep()
        self._resolving = Turn()
        self._replanning = Replanning()
        self._standing = admission.Standing()
        self._clock = DatabaseClock()
        self._stepped_s = 0.0  # by which it was moved, until everybody has been given time
        self._leases_known = False
        self.watch = Watch()
        self._pruner = Pruner()
        self._counting = rollups.Counting()
        self._pruning = Due(time.monotonic() + settings.prune_every_s)
        self._withdrawing = Due(max(reap_from, time.monotonic() + settings.prune_every_s))
        self._tallying, self._watching = Due(0.0), Due(0.0)

    def perform(self) -> float:
        """One batch of everything that is due now, so that no duty starves another; seconds until the next round."""
        now = time.monotonic()
        try:
            return self._perform(now)
        except DatabaseError:
            self._stall.failed(now)
            raise

    def _perform(self, now: float) -> float:
        reap, count = self._reaping.now(now), self._tallying.now(now, lull=self._lull)
        due = leadership.look(
            self.conn, self.term, searched_s=self.search.began_s, count=count, lead_s=self._lead.s(now)
        )
        looked_at = time.monotonic()
        if (grace_s := self._stall.grace_s(self.conn, now)) > 0:
            self._reap_nothing_for(grace_s)
            reap = False
        reap = not self._heed_clock(now, due.now_s) and reap
        more = self._try(lambda: self._limit(due.unapplied)) if due.limited or due.unapplied else 0
        more += self._try(self._replan) if now >= self._replanning.at else 0
        if ticked := self._try(self._tick) if due.jobs else 0:
            self._lull_until = time.monotonic() + LULL_S
        done = self._try(lambda: self._reclaim(now, due, reap and self._reaping.now(now, lull=self._lull)))
        if due.runs or due.waiting or done:  # after reaping: a revoked claim may be what a run waited for
            done += self._try(self._resolve) + self._try(self._admit)
        done += self._try(self._record) if due.passed_over else 0
        done += self._try(self._backfill) if due.backfills else 0
        self._try(lambda: self._count(now, due.ended) if count and self._tallying.now(now, lull=self._lull) else 0)
        self._try(lambda: self._watch(now))
        self._try(lambda: self._prune(now))
        self._try(lambda: self._withdraw(now))
        self._stall.took(time.monotonic() - now)
        done += ticked
        # what is due although this round did nothing is locked by somebody: look again soon, but do not spin
        self._held_up = self._held_up + 1 if not done and (due.jobs or due.runs or due.passed_over) else 0
        return 0.0 if done or more else max(0.0, self._pause_s(due, time.monotonic() - looked_at))

    @property
    def _lull(self) -> bool:
        return time.monotonic() < self._lull_until

    def _heed_clock(self, sent_at: float, now_s: float) -> bool:
        """True when the database's clock was moved: every worker gets the time to renew its claims."""
        stepped_s = self._clock.stepped_s(sent_at, time.monotonic(), now_s)
        self._leases_known = self._leases_known and stepped_s >= 0
        self._stepped_s = stepped_s or self._stepped_s
        if self._stepped_s == 0:
            return False
        self._reap_nothing_for(expired_leases.leases(self.conn)[1])
        logger.warning("the database's clock was moved", ahead_s=round(self._stepped_s, 1))
        self._stepped_s = 0.0
        return True

    def _reap_nothing_for(self, seconds: float) -> None:
        self._reaping.exactly(time.monotonic() + seconds)
        self._withdrawing.exactly(time.monotonic() + max(seconds, self.settings.prune_every_s))
        self.search.hurry()

    def _reclaim(self, now: float, due: leadership.Look, reap: bool) -> int:
        """Look for claims that are not to be believed any more, when it is time, and do what follows of those found."""
        found = self.search.answer()
        if reap:  # first: what fails must not be tried again at once, round after round
            self._reaping.within(now, self.settings.reap_every_s, LONGEST_PAUSE_S)
        if found is None and self.search.busy:
            if reap:
                self._reaping.exactly(now + LOOK_S)
        elif found is None and self._wants_search(now, due, reap):
            found = self.search.make(self.conn, Asked(BATCH, due.now_s, reap, not self._leases_known))
        if found is None:
            return 0
        if found.asked.reaping and not found.expired:
            self._stall.reaped()
            seldom_s = max(self.settings.reap_every_s, min(LONGEST_S, SELDOM * self.settings.reap_every_s))
            self.search.next_at = max(self.search.next_at, now + seldom_s)
        if found.long:
            self._try(lambda: self._shorten_leases(found))
        elif found.asked.long and found.whole:
            self._leases_known = True
        return self._reap(found.expired, due.now_s) if found.expired else 0

    def _wants_search(self, now: float, due: leadership.Look, reap: bool) -> bool:
        return (reap and due.silent) or (now >= self.search.next_at and (reap or not self._leases_known))

    def _shorten_leases(self, found: Found) -> int:
        """They end a lease from now, and are looked for only then."""
        with self.leading() as conn:
            shortened = expired_leases.shorten_leases(conn, found.long)
        self._leases_known = found.whole
        self._reap_nothing_for(expired_leases.leases(self.conn)[1])
        return shortened

    def _pause_s(self, due: leadership.Look, since_s: float) -> float:
        """Seconds until there may be something to do, after a round that did nothing, `since_s` seconds after its look:
        what the leader keeps may have taken long."""
        if self._held_up:
            return min(HELD_UP_PAUSE_S, 0.001 * 2.0 ** min(self._held_up, 10))
        # well below the idle time after which the server ends this session
        longest = min(UNHEARD_PAUSE_S if is_shared(self.conn) else LONGEST_PAUSE_S, self.settings.session_timeout_s / 4)
        kept = (self._reaping, self._pruning, self._tallying, self._watching)
        next_at = min(each.by for each in kept)
        pauses: list[float] = [longest, next_at - time.monotonic()]
        if due.wait_s is not None:
            pauses.append(due.wait_s - since_s)
        if self._lull and any(each.at <= self._lull_until for each in kept):
            pauses.append(self._lull_until - time.monotonic())
        if self.search.busy:
            pauses.append(LOOK_S)
        if due.waiting or due.limited:
            pauses.append(WAITING_PAUSE_S)
        if due.unapplied:
            pauses.append(HELD_UP_PAUSE_S)
        if due.limited and self._standing.wait_s is not None:
            pauses.append(self._standing.wait_s)
        if due.backfills:
            pauses.append(self._backfills.pause_s())
        return min(pauses)

    def _try(self, duty: Callable[[], int]) -> int:
        """What one duty did; one that fails must not stop the others."""
        return isolated(
            duty,
            lambda error: logger.warning("conflict, trying again", error=error),
            lambda error: logger.error("a duty failed", error=error),
        )

    @contextmanager
    def leading(self) -> Iterator[Connection[Any]]:
        """A transaction that begins by proving leadership."""
        with self.conn.transaction():
            leadership.fence(self.conn, self.term)
            yield self.conn
            if is_shared(self.conn):  # a long one must not look like the end of the term
                leadership.seen(self.conn, self.term)

    def resign(self) -> None:
        """Close the term."""
        with self.leading() as conn:
            leadership.seen(conn, self.term, resign=True)

    def _tick(self) -> int:
        began = time.monotonic()
        lead_s = self._lead.s(began)
        try:
            with self.leading() as conn:
                done = tick(conn, self.settings.tick_batch, lead_s)
                took_s = time.monotonic() - began
                if done.jobs:
                    self._lead.took(took_s)
                if done.instant is not None:
                    self._lead.wait(conn, done, done.instant, lead_s)
        except NotAsPrepared as reason:
            logger.debug("prepared in vain", reason=str(reason))
            return 0
        if self.counted is not None:
            self.counted.ticked(took_s, done.jobs, done.slots)
        if done.errors:
            logger.warning("jobs in error", count=done.errors)
        if done.slots:
            logger.debug("ticked", jobs=done.jobs, slots=done.slots)
        return done.jobs

    def _replan(self) -> int:
        return self._replanning.work(self.conn, self.leading)

    def _resolve(self) -> int:
        with self.leading() as conn:
            return resolve(conn, BATCH, self._resolving)

    def _admit(self) -> int:
        with self.leading() as conn:
            return ticks.admit(conn, BATCH)

    def _limit(self, unapplied: bool) -> int:
        taken = 0
        if unapplied:
            with self.leading() as conn:
                taken = admission.apply(conn, self._standing)
        # Not in a pipeline: between its statements the server keeps no time, and a leader that is parted from it or
        # frozen there would hold the locks for as long as TCP lets it.
        with self.leading() as conn:
            admission.admit(conn, self._standing)
        return int(self._standing.more) or taken

    def _reap(self, ids: list[int], before_s: float) -> int:
        with self.leading() as conn:
            reaped = expired_leases.reap(conn, ids, self.settings.crash_limit, before_s)
        self._stall.reaped()
        if self.counted is not None:
            self.counted.reaped(reaped)
        for run in reaped:
            logger.warning("claim expired", run=run["id"], attempt=run["attempt"], crashes=run["crashes"],
                           now=run["state"])  # fmt: skip
        if len(reaped) >= BATCH:  # a fleet went down: the rest must not wait a period for every batch
            self._reaping.exactly(time.monotonic())
            self.search.hurry()
        return len(reaped)

    def _record(self) -> int:
        with self.leading() as conn:
            return skipped_slots.record(conn)

    def _backfill(self) -> int:
        with self.leading() as conn:
            return int(backfill.work(conn, self._backfills))

    def _count(self, now: float, ended: bool) -> int:
        self._tallying.within(now, self.settings.count_every_s, LONGEST_PAUSE_S)  # first, as below
        if not (ended or self._counting.wants(now)):
            return 0
        began = time.monotonic()
        counted = self._counting.work(self.conn, self.leading)
        if self._counting.waits:
            self._tallying.exactly(breather(began) if counted else now + WAITING_PAUSE_S)
        return 0

    def _watch(self, now: float) -> int:
        if self._watching.now(now, lull=self._lull):
            self._watching.within(now, EVERY_S, LONGEST_PAUSE_S)  # first, as below
            began = time.monotonic()
            again_s = self.watch.work(self.conn, self.leading, leads=True)
            self._watching.within(began, max(breather(began) - began, again_s), LONGEST_PAUSE_S if again_s else 0.0)
        return 0

    def _prune(self, now: float) -> int:
        if not self._pruning.now(now, lull=self._lull):
            return 0
        # first: a prune that fails must not hold up every round
        self._pruning.within(now, self.settings.prune_every_s, LONGEST_PAUSE_S)
        began = time.monotonic()
        with self.leading() as conn:
            gone = self._pruner.work(conn, self.settings.prune_batch)
            if not (gone or self._pruner.more):  # nearly always, where little is done
                self._tidy(conn, began)
        if self.counted is not None:
            self.counted.pruned(gone)
        if self._pruner.more:
            self._pruning.exactly(breather(began, REST))
        elif gone:
            with self.leading() as conn:
                self._tidy(conn, began)
        return gone

    def _withdraw(self, now: float) -> int:
        if not self._withdrawing.now(now, lull=self._lull):
            return 0
        self._withdrawing.within(now, self.settings.prune_every_s, LONGEST_PAUSE_S)  # first, as above
        return withdraw(self.conn, self.leading, self.settings.withdraw_after_s)

    def _tidy(self, conn: Connection[Any], began: float) -> None:
        if self._pruner.tidy(conn, BATCH) >= BATCH:
            self._pruning.exactly(breather(began))
        self._sweep.work(conn, BATCH)
        limits.forget(conn)


def breather(began: float, times: float = 1.0) -> float:
    """When to go on with what has many batches: others get so many times as much time as the last one took."""
    now = time.monotonic()
    return now + max(0.005, times * (now - began))
