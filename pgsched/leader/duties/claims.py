"""The duty that takes back claims whose lease has ended, and shortens leases that are too long.

Invariant: after an outage, or a step of the database's clock, nothing is taken back before workers had a lease's time
to renew their claims.
"""

from __future__ import annotations

import math
import time

from pgsched.db.queries.leader import expired_leases
from pgsched.leader.duty import BATCH, Duty, Round
from pgsched.leader.isolation import pieces
from pgsched.leader.reaper import LONGEST_S, LOOK_S, ReapQuery, ReapResult, Search, log_expired
from pgsched.leader.term import Term
from pgsched.leader.timing.periodic import Periodic
from pgsched.leader.timing.stall_detector import StallDetector

SELDOM = 12  # reap periods from one look for claims to the next while no worker is silent


class ClaimsDuty(Duty):
    """Looks for such claims once a period, or asks a look that is under way for its answer in every round.

    `search`: its looks. `stall`: is told when claims were taken back, or there were none.
    """

    name = "claims"

    def __init__(self, term: Term, stall: StallDetector, search: Search, reap_from: float) -> None:
        super().__init__(term)
        self.search = search
        self.period = Periodic(reap_from, term.settings.reap_every_s)
        self._stall = stall
        self._reaps = False  # in this round
        self._leases_known = False  # every lease that is too long has been shortened

    def start(self, this_round: Round) -> bool:
        self._reaps = self.period.start(this_round.began, lull=self.term.lull)
        return True

    def run(self, this_round: Round) -> int:
        found = self._look(this_round)
        if found is None:
            return 0
        if found.query.reaping and not found.expired:
            self._stall.reaped()
            seldom_s = max(self.period.every_s, min(LONGEST_S, SELDOM * self.period.every_s))
            self.search.next_at = max(self.search.next_at, this_round.began + seldom_s)
        if found.long:
            self.term.guard.run("leases", lambda: self._shorten_leases(found))
        elif found.query.long and found.whole:
            self._leases_known = True
        freed = self._take_back(found.expired, this_round.look.now_s) if found.expired else 0
        this_round.freed += freed
        return freed

    def pause_s(self, this_round: Round) -> float:
        look_s = LOOK_S if self.search.busy else math.inf
        return min(look_s, self.period.pause_s(self.term.lull_until))

    def give_workers(self, seconds: float) -> None:
        self.period.exactly(time.monotonic() + seconds)
        self.search.hurry()

    def forget_leases(self) -> None:
        """The database's clock was moved back: leases may be too long."""
        self._leases_known = False

    def _look(self, this_round: Round) -> ReapResult | None:
        """The answer of the look that is under way, or of a new one when it is time; None: there is none yet."""
        found = self.search.answer()
        if found is not None:
            return found
        if self.search.busy:
            if self._reaps:
                self.period.exactly(this_round.began + LOOK_S)
            return None
        silent = self._reaps and this_round.look.silent
        if silent or (this_round.began >= self.search.next_at and (self._reaps or not self._leases_known)):
            query = ReapQuery(BATCH, this_round.look.now_s, self._reaps, not self._leases_known)
            return self.search.make(self.term.conn, query)
        return None

    def _shorten_leases(self, found: ReapResult) -> int:
        """Let them end a lease from now; only then are they looked for again."""
        with self.term.leading() as conn:
            shortened = expired_leases.shorten_leases(conn, found.long)
        self._leases_known = found.whole
        self.give_workers(expired_leases.leases(self.term.conn)[1])
        return shortened

    def _take_back(self, run_ids: list[int], before_s: float) -> int:
        parts = pieces.claims(self.term, run_ids, lambda some: self._reap(some, before_s))
        return self.term.guard.run(pieces.CLAIMS, lambda: self._reap(run_ids, before_s), parts)

    def _reap(self, run_ids: list[int], before_s: float) -> int:
        with self.term.leading() as conn:
            reaped = expired_leases.reap(conn, run_ids, self.term.settings.crash_limit, before_s)
            lost = expired_leases.note_lost(conn, [run["id"] for run in reaped]) if reaped else {}
        self._stall.reaped()
        if self.term.meter is not None:
            self.term.meter.reaped(reaped)
        log_expired(reaped, lost)
        if len(reaped) >= BATCH:  # a fleet went down: the others must not wait a period for every batch
            self.period.exactly(time.monotonic())
            self.search.hurry()
        return len(reaped)
