"""The leader's round: tick, admit, reap, prune, each in a transaction of its own that proves leadership first.

`perform` does what is due and says how long nothing else will be. Reaping starts one full lease after the election,
so that an outage longer than a lease does not requeue what healthy workers still run.
"""

from __future__ import annotations

import math
import time
from typing import Any

from pgsched import log
from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import first_line
from pgsched.db.connection.transaction_pooling import is_shared
from pgsched.db.queries.leader import expired_leases, leadership, ticks
from pgsched.db.queries.runs import dependencies
from pgsched.leader import admission, backfill, skipped_slots
from pgsched.leader.circles import Circles
from pgsched.leader.dependents import JUDGED, Turn, resolve
from pgsched.leader.housekeeping import BATCH, LONGEST_PAUSE_S, WAITING_PAUSE_S, Housekeeping
from pgsched.leader.isolation import pieces
from pgsched.leader.isolation.guard import FEW
from pgsched.leader.isolation.set_aside import JOB_MOST_S
from pgsched.leader.preparation import NotAsPrepared, PreparationLead
from pgsched.leader.reaper import LONGEST_S, LOOK_S, Asked, Found, Search, tell_expired
from pgsched.leader.replanning import Replanning
from pgsched.leader.ticker import tick
from pgsched.leader.timing.clock_step import DatabaseClock
from pgsched.leader.timing.floors import Floors
from pgsched.leader.timing.stall_detector import StallDetector

logger = log.get("leader")
UNHEARD_PAUSE_S = 1.0  # behind a pooler, where there are none, and where others watch how old the term's row is
HELD_UP_PAUSE_S = 0.2
LULL_S = 0.03  # behind an instant: what the leader keeps would keep the workers from starting what is due
SELDOM = 12  # reap periods from one look for claims to the next while no worker is silent


class Duties(Housekeeping):
    """The duties of one term on one connection. `reap_from`: monotonic instant before which nothing is reaped.
    `locked`: the session lock keeps candidates away. `search`: the looks for expired claims. `stall`: whether the
    database was away."""

    def __init__(
        self, conn: Connection[Any], term: int, settings: LeaderSettings, reap_from: float, *, locked: bool = True
    ) -> None:
        super().__init__(conn, term, settings, reap_from, locked=locked)
        self._held_up = 0
        self.stall = StallDetector()
        self.search = Search()
        self._lead = PreparationLead()
        self.floors = Floors()
        self._backfills = backfill.Turn()
        self._resolving = Turn()
        self._circles = Circles()
        self._replanning = Replanning()
        self._standing = admission.Standing()
        self.clock = DatabaseClock()
        self._stepped_s, self._leases_known = 0.0, False  # by which it was moved, until everybody has been given time
        works = (self._tick, self._standing, self._counting, self._pruner)
        self._pieces |= pieces.of_duties(self._site, settings, BATCH, *works)

    def perform(self) -> float:
        """One batch of everything that is due now, so that no duty starves another; seconds until the next round."""
        now, self.useful = time.monotonic(), False  # has this round done anything?
        try:
            return self._perform(now)
        except DatabaseError:
            self.stall.failed(now)
            raise

    def _perform(self, now: float) -> float:
        timetable = self.timetable
        reap, count = timetable.reaping.is_due(now), timetable.counting.is_due(now, lull=timetable.lull)
        since, searched_s, aside = self.floors.since, self.search.began_s, self.aside.numbers(pieces.JOBS)
        due = leadership.look(
            self.conn,
            self.term,
            searched_s=searched_s,
            count=count,
            lead_s=self._lead.s(now),
            aside=aside,
            since=since,
        )
        self.floors.rise(due.firsts, due.now_s, jobs_left=bool(aside))
        looked_at = time.monotonic()
        if (grace_s := self.stall.grace_s(self.conn, now)) > 0:
            self._reap_nothing_for(grace_s)
            reap = False
        reap = not self._heed_clock(now, due.now_s) and reap
        more = self._do("changed limits", self._apply_limits) if due.unapplied else 0
        more += self._do("limits", self._limit) if due.limited or due.unapplied else 0
        if now >= self._replanning.at:
            more += self._do("replanning", lambda: self._replanning.work(self.conn, self.leading))
        trusted = self.clock.is_trusted(now)
        if ticked := self._do("tick", self._tick) if due.jobs and trusted else 0:
            timetable.lull_until = time.monotonic() + LULL_S
        reap = reap and timetable.reaping.is_due(now, lull=timetable.lull)
        done = self._do("claims", lambda: self._reclaim(now, due, reap))
        if due.waiting and now >= self._circles.at:
            done += self._do("circles", lambda: self._circles.work(self.conn, self.leading))
        if due.runs or due.waiting or done:  # after reaping: a revoked claim may be what a run waited for
            done += self._do("dependencies", self._resolve)
            done += self._do("admission", self._admit) if trusted else 0
        done += self._do("passed over slots", self._record) if due.passed_over else 0
        done += self._do("backfills", self._backfill) if due.backfills else 0
        done += self._do("looking below", lambda: self.floors.look_below(self.conn, now))
        self.keep(now, count=count, ended=due.ended, trusted=trusted)
        self.stall.took(time.monotonic() - now)
        done += ticked
        self.useful = self.useful or bool(done or more)
        # what is due although this round did nothing is locked by somebody: look again soon, but do not spin
        self._held_up = self._held_up + 1 if not done and (due.jobs or due.runs or due.passed_over) else 0
        return 0.0 if done or more else max(0.0, self._pause_s(due, time.monotonic() - looked_at))

    def _heed_clock(self, sent_at: float, now_s: float) -> bool:
        """True when the database's clock was moved: every worker gets the time to renew its claims."""
        stepped_s = self.clock.stepped_s(sent_at, time.monotonic(), now_s)
        self._leases_known = self._leases_known and stepped_s >= 0
        self._stepped_s = stepped_s or self._stepped_s
        if self._stepped_s == 0:
            return False
        self.floors.reset()
        self.timetable.pruning.exactly(max(self.timetable.pruning.at, self.clock.trusted_at))
        self._reap_nothing_for(expired_leases.leases(self.conn)[1])
        logger.warning("the database's clock was moved", ahead_s=round(self._stepped_s, 1),
                       decides_in_s=round(max(0.0, self.clock.trusted_at - time.monotonic()), 1))  # fmt: skip
        self._stepped_s = 0.0
        return True

    def _reap_nothing_for(self, seconds: float) -> None:
        self.timetable.reaping.exactly(time.monotonic() + seconds)
        self.timetable.withdrawing.exactly(time.monotonic() + max(seconds, self.settings.prune_every_s))
        self.search.hurry()

    def _reclaim(self, now: float, due: leadership.Look, reap: bool) -> int:
        """Look for claims that are not to be believed any more, when it is time, and do what follows of those found."""
        found = self.search.answer()
        if reap:  # first: what fails must not be tried again at once, round after round
            self.timetable.reaping.within(now, self.settings.reap_every_s, LONGEST_PAUSE_S)
        if found is None and self.search.busy:
            if reap:
                self.timetable.reaping.exactly(now + LOOK_S)
        elif found is None and self._wants_search(now, due, reap):
            found = self.search.make(self.conn, Asked(BATCH, due.now_s, reap, not self._leases_known))
        if found is None:
            return 0
        if found.asked.reaping and not found.expired:
            self.stall.reaped()
            seldom_s = max(self.settings.reap_every_s, min(LONGEST_S, SELDOM * self.settings.reap_every_s))
            self.search.next_at = max(self.search.next_at, now + seldom_s)
        if found.long:
            self._do("leases", lambda: self._shorten_leases(found))
        elif found.asked.long and found.whole:
            self._leases_known = True
        if not found.expired:
            return 0
        parts = pieces.claims(self._site, found.expired, lambda some: self._reap(some, due.now_s))
        return self.guard.run(pieces.CLAIMS, lambda: self._reap(found.expired, due.now_s), parts)

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
        longest = UNHEARD_PAUSE_S if is_shared(self.conn) or not self.locked else LONGEST_PAUSE_S
        longest = min(longest, self.settings.session_timeout_s / 4)
        timetable = self.timetable
        kept = (timetable.reaping, timetable.pruning, timetable.counting, timetable.watching)
        next_at = min(each.by for each in kept)
        pauses: list[float] = [longest, next_at - time.monotonic()]
        if due.wait_s is not None:
            pauses.append(due.wait_s - since_s)
        if timetable.lull and any(each.at <= timetable.lull_until for each in kept):
            pauses.append(timetable.lull_until - time.monotonic())
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
        pauses.append(self.guard.pause_s())
        return min(pauses)

    def resign(self) -> None:
        """Close the term."""
        with self.leading() as conn:
            leadership.seen(conn, self.term, resign=True)

    def _tick(self, n: int | None = None) -> int:
        """Decide a batch (of `n` jobs); jobs that could not be written stay due, and are set aside."""
        began = time.monotonic()
        lead_s = self._lead.s(began)
        try:
            with self.leading() as conn:
                # what is done in pieces looks at everything
                since_s = self.floors.since.job_s if n is None else -math.inf
                done = tick(conn, n or self.settings.tick_batch, lead_s, self.aside.numbers(pieces.JOBS), since_s)
                took_s = time.monotonic() - began
                if len(done.failed) > (0 if n else FEW) and not done.jobs:
                    raise next(iter(done.failed.values()))
                if done.jobs:
                    self._lead.took(took_s)
                if done.instant is not None:
                    self._lead.wait(conn, done, done.instant, lead_s)
        except NotAsPrepared as reason:
            logger.debug("prepared in vain", reason=str(reason))
            return 0
        if done.failed:
            rows = ((str(job), first_line(error)) for job, error in done.failed.items())
            self.guard.set_aside(pieces.JOBS, rows, proven=done.jobs > 0, doubled_to_s=JOB_MOST_S)
        if self.counted is not None:
            self.counted.ticked(took_s, done.jobs, done.slots)
        if done.errors:
            logger.warning("jobs in error", count=done.errors)
        if done.slots:
            logger.debug("ticked", jobs=done.jobs, slots=done.slots)
        return done.jobs

    def _resolve(self) -> int:
        again = [int(row) for row in self.aside.over(JUDGED)]
        turn, self._resolving = self._resolving, Turn()  # where it fails, what was marked is not
        with self.leading() as conn:
            if again:
                dependencies.judge(conn, again)
            done = resolve(conn, BATCH, turn, self.aside.numbers)
        self._resolving = turn
        return done

    def _admit(self) -> int:
        with self.leading() as conn:
            return ticks.admit(conn, BATCH, self.aside.numbers, self.floors.since)

    def _apply_limits(self) -> int:
        with self.leading() as conn:
            return admission.apply(conn, self._standing)

    def _limit(self) -> int:
        self.useful = pieces.limit(self._site, self._standing) > 0
        return int(self._standing.more)

    def _reap(self, ids: list[int], before_s: float) -> int:
        with self.leading() as conn:
            reaped = expired_leases.reap(conn, ids, self.settings.crash_limit, before_s)
            held = expired_leases.note_lost(conn, [run["id"] for run in reaped]) if reaped else {}
        self.stall.reaped()
        if self.counted is not None:
            self.counted.reaped(reaped)
        tell_expired(reaped, held)
        if len(reaped) >= BATCH:  # a fleet went down: the rest must not wait a period for every batch
            self.timetable.reaping.exactly(time.monotonic())
            self.search.hurry()
        return len(reaped)

    def _record(self) -> int:
        with self.leading() as conn:
            return skipped_slots.record(conn, aside=self.aside.numbers(pieces.STRETCHES))

    def _backfill(self) -> int:
        with self.leading() as conn:
            done = backfill.work(conn, self._backfills, self.aside.numbers(pieces.BACKFILLS))
        pieces.leave(self._site, pieces.BACKFILLS, done.failed, done.went)
        return int(done.more)
