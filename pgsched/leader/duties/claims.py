"""The claims duty: take back claims whose lease has ended, and shorten leases that are too long.

Invariant: after an outage, or a step of the database's clock, workers have a lease's time to renew their claims before
any is taken back.
"""

from __future__ import annotations

import math
import time

from pgsched.db.queries.leader import expired_leases
from pgsched.leader.duty import BATCH, Duty, Round
from pgsched.leader.isolation import pieces
from pgsched.leader.reaper import LONGEST_S, LOOK_S, LeaseSearch, ReapQuery, ReapResult, log_expired
from pgsched.leader.term import Term
from pgsched.leader.timing.periodic import Periodic
from pgsched.leader.timing.stall_detector import StallDetector

SELDOM = 12  # reap periods between two searches while no worker is silent


class ClaimsDuty(Duty):
    """The duty that takes back claims: it searches once a period, and collects the answer in any round.

    `search`: its searches.
    `stall`: informed when claims were taken back, or when there were none.
    """

    name = "claims"

    def __init__(self, term: Term, stall: StallDetector, search: LeaseSearch, reap_from: float) -> None:
        super().__init__(term)
        self.search = search
        self.period = Periodic(reap_from, term.settings.reap_every_s)
        self._stall = stall
        self._period_is_over = False  # the period is over in this round
        self._long_leases_shortened = False  # every lease that is too long has been shortened

    def start(self, this_round: Round) -> bool:
        """Note whether the period is over; the duty runs in every round, as a search may be under way."""
        self._period_is_over = self.period.start(this_round.began, lull=self.term.lull)
        return True

    def run(self, this_round: Round) -> int:
        """Take back expired claims that a search found, and shorten long leases; return how many were taken back."""
        found = self._look(this_round)
        if found is None:
            return 0
        if found.query.reaping and not found.expired:
            self._stall.record_search()
            seldom_s = max(self.period.every_s, min(LONGEST_S, SELDOM * self.period.every_s))
            self.search.next_at = max(self.search.next_at, this_round.began + seldom_s)
        if found.long:
            self.term.guard.run("leases", lambda: self._shorten_leases(found))
        elif found.query.wants_long_leases and found.whole:
            self._long_leases_shortened = True
        freed = self._take_back(found.expired, this_round.look.now_s) if found.expired else 0
        this_round.freed += freed
        return freed

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until the next search, or until a running search is to be asked again."""
        look_s = LOOK_S if self.search.busy else math.inf
        return min(look_s, self.period.pause_s(self.term.lull_until))

    def give_workers_time(self, seconds: float) -> None:
        """Take nothing back for `seconds`, and ignore the result of a search that is under way."""
        self.period.set_due_at(time.monotonic() + seconds)
        self.search.search_now()

    def check_leases_again(self) -> None:
        """Check all leases again: the database's clock was moved back, so they may be too long."""
        self._long_leases_shortened = False

    def _look(self, this_round: Round) -> ReapResult | None:
        """Return the answer of the search under way, or of a new one when it is time; None if there is none yet."""
        found = self.search.take_result()
        if found is not None:
            return found
        if self.search.busy:
            if self._period_is_over:
                self.period.set_due_at(this_round.began + LOOK_S)
            return None
        silent = self._period_is_over and this_round.look.silent
        if silent or (
            this_round.began >= self.search.next_at and (self._period_is_over or not self._long_leases_shortened)
        ):
            query = ReapQuery(BATCH, this_round.look.now_s, self._period_is_over, not self._long_leases_shortened)
            return self.search.search(self.term.conn, query)
        return None

    def _shorten_leases(self, found: ReapResult) -> int:
        """Let these leases end one lease from now, and only then search for expired ones again."""
        with self.term.leading() as conn:
            shortened = expired_leases.shorten_leases(conn, found.long)
        self._long_leases_shortened = found.whole
        self.give_workers_time(expired_leases.lease_bounds(self.term.conn)[1])
        return shortened

    def _take_back(self, run_ids: list[int], before_s: float) -> int:
        """Take back these claims, in pieces if that fails as a whole; return how many."""
        parts = pieces.rows_of_batch(self.term, pieces.CLAIMS, run_ids, lambda some: self._reap(some, before_s))
        return self.term.guard.run(pieces.CLAIMS, lambda: self._reap(run_ids, before_s), parts)

    def _reap(self, run_ids: list[int], before_s: float) -> int:
        """Take back those of these claims whose lease had ended at `before_s` (seconds since 1970); return how many."""
        with self.term.leading() as conn:
            reaped = expired_leases.reap(conn, run_ids, self.term.settings.crash_limit, before_s)
            lost = expired_leases.note_lost(conn, [run["id"] for run in reaped]) if reaped else {}
        self._stall.record_search()
        if self.term.meter is not None:
            self.term.meter.record_reaped(reaped)
        log_expired(reaped, lost)
        if len(reaped) >= BATCH:  # a fleet went down: its other claims must not wait a period for every batch
            self.period.set_due_at(time.monotonic())
            self.search.search_now()
        return len(reaped)
