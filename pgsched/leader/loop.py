"""The leader's loop: one query for all due work (the look), then each duty in its own fenced transaction.

Invariant: a round does one batch of everything that is due, so that no duty starves another.

Reaping starts one full lease after the election. So an outage longer than a lease does not requeue runs that healthy
workers still run.
"""

from __future__ import annotations

import math
import time
from functools import partial

from pgsched import log
from pgsched.db.connection.connect import DatabaseError
from pgsched.db.queries.leader import expired_leases, leadership
from pgsched.leader.admission import AdmissionState
from pgsched.leader.alerting.incidents import IncidentWatch
from pgsched.leader.duties.calendars import CalendarsDuty
from pgsched.leader.duties.claims import ClaimsDuty
from pgsched.leader.duties.housekeeping import (
    AlertsDuty,
    DeclarationsDuty,
    FiguresDuty,
    NotificationsDuty,
    PruningDuty,
    TidyingDuty,
)
from pgsched.leader.duties.next_slots import NextSlotsDuty
from pgsched.leader.duties.sessions import NamesDuty, SessionsDuty
from pgsched.leader.duties.slots import BackfillsDuty, LookBelowDuty, PassedOverDuty, ReplanningDuty, TickDuty
from pgsched.leader.duties.waiting import AdmissionDuty, ChangedLimitsDuty, CirclesDuty, DependenciesDuty, LimitsDuty
from pgsched.leader.duty import Duty, Round
from pgsched.leader.isolation import pieces
from pgsched.leader.reaper import LeaseSearch
from pgsched.leader.term import Term
from pgsched.leader.timing.clock_step import DatabaseClock
from pgsched.leader.timing.floors import Floors
from pgsched.leader.timing.periodic import LONGEST_PAUSE_S
from pgsched.leader.timing.stall_detector import StallDetector

logger = log.get("leader")
LONGEST_PAUSE_WITHOUT_NOTIFICATIONS_S = (
    1.0  # longest pause behind a pooler (no notification comes), or if candidates watch the term's row
)
LONGEST_PAUSE_WHILE_BLOCKED_S = 0.2


class LeaderLoop:
    """The rounds of one term.

    `duties`: in the order in which a round does them.
    `floors`: the instant from which the look reads each index.
    `stall`: notices that the database was away.
    `clock`: notices that the database's clock was moved.
    `useful`: the last round did something.
    """

    def __init__(
        self,
        term: Term,
        reap_from: float,
        *,
        search: LeaseSearch | None = None,
        watch: IncidentWatch | None = None,
        floors: Floors | None = None,
    ) -> None:
        """Set up the duties. `reap_from`: monotonic instant before which nothing is reaped."""
        self.term = term
        self.floors = floors or Floors()
        self.stall = StallDetector()
        self.clock = DatabaseClock()
        self.useful = False
        next_slots = NextSlotsDuty(term)
        self.tick = TickDuty(term, self.floors, next_slots.next_slots)
        self.claims = ClaimsDuty(term, self.stall, search or LeaseSearch(), reap_from)
        self.figures = FiguresDuty(term)
        admission_state, pruning = AdmissionState(), PruningDuty(term)
        self.duties: tuple[Duty, ...] = (
            ChangedLimitsDuty(term, admission_state),
            LimitsDuty(term, admission_state),
            ReplanningDuty(term),
            CalendarsDuty(term),
            self.tick,
            self.claims,
            CirclesDuty(term),
            DependenciesDuty(term),  # after the two duties that free runs
            AdmissionDuty(term, self.floors),
            PassedOverDuty(term),
            BackfillsDuty(term),
            LookBelowDuty(term, self.floors),
            next_slots,
            SessionsDuty(term),
            self.figures,
            AlertsDuty(term, watch or IncidentWatch()),
            pruning,
            TidyingDuty(term, pruning.pruner),
            NamesDuty(term),
            DeclarationsDuty(term, reap_from),
            NotificationsDuty(term),
        )
        self._blocked_rounds = 0  # rounds in a row that did nothing although something was due
        self._stepped_s = 0.0  # by which the clock was moved; 0 once all workers have got their time

    def run_once(self) -> float:
        """Do one batch of everything that is due now; return the seconds until the next round."""
        began, self.useful = time.monotonic(), False
        try:
            return self._run_once(began)
        except DatabaseError:
            self.stall.record_failure(began)
            raise

    def _run_once(self, began: float) -> float:
        this_round = self._look(began)
        looked_at = time.monotonic()
        if (grace_s := self.stall.grace_s(self.term.conn, began)) > 0:
            self._give_workers_time(grace_s)
        self._handle_clock_step(this_round)
        done = 0
        for duty in self.duties:
            if duty.start(this_round):
                result = self.term.guard.run(duty.name, partial(duty.run, this_round), duty.pieces)
                done += result if duty.repeats else 0
        self.stall.record_round(time.monotonic() - began)
        self.useful = this_round.useful or done > 0
        look = this_round.look
        # rows that are due although this round did nothing are locked: look again soon, but do not spin
        self._blocked_rounds = (
            self._blocked_rounds + 1 if not done and (look.jobs or look.runs or look.passed_over) else 0
        )
        return 0.0 if done else max(0.0, self._pause_s(this_round, time.monotonic() - looked_at))

    def _look(self, began: float) -> Round:
        """Ask the database which work is due."""
        figures = self.figures.period.is_due(began, lull=self.term.lull)
        jobs_set_aside = self.term.set_aside.skipped_ids(pieces.JOBS)
        look = leadership.find_due_work(
            self.term.conn,
            self.term.number,
            searched_s=self.claims.search.last_reap_search_s,
            count=figures,
            lead_s=self.tick.lead.s(began),
            excluded_ids=jobs_set_aside,
            since=self.floors.instants,
        )
        self.floors.raise_to(look.firsts, look.now_s, jobs_left=bool(jobs_set_aside))
        return Round(began, look, figures)

    def _handle_clock_step(self, this_round: Round) -> None:
        """Give every worker the time to renew its claims where the database's clock was moved."""
        stepped_s = self.clock.stepped_s(this_round.began, time.monotonic(), this_round.look.now_s)
        this_round.trusted_at = self.clock.trusted_at
        if stepped_s < 0:
            self.claims.check_leases_again()
        self._stepped_s = stepped_s or self._stepped_s
        if self._stepped_s == 0:
            return
        self.floors.reset()
        self._give_workers_time(expired_leases.lease_bounds(self.term.conn)[1])
        logger.warning("the database's clock was moved", ahead_s=round(self._stepped_s, 1),
                       decides_in_s=round(max(0.0, self.clock.trusted_at - time.monotonic()), 1))  # fmt: skip
        self._stepped_s = 0.0

    def _give_workers_time(self, seconds: float) -> None:
        """Put off all decisions about silent workers by `seconds`."""
        for duty in self.duties:
            duty.give_workers_time(seconds)

    def _pause_s(self, this_round: Round, since_s: float) -> float:
        """Return the seconds until there may be something to do, after a round that did nothing.

        `since_s`: seconds since the look of that round, because its duties may have taken long.
        """
        if self._blocked_rounds:
            return min(LONGEST_PAUSE_WHILE_BLOCKED_S, 0.001 * 2.0 ** min(self._blocked_rounds, 10))
        longest_s = LONGEST_PAUSE_S if self.term.exclusive else LONGEST_PAUSE_WITHOUT_NOTIFICATIONS_S
        # well below the idle time after which the server ends this session
        longest_s = min(longest_s, self.term.settings.session_timeout_s / 4)
        due_s = math.inf if this_round.look.wait_s is None else this_round.look.wait_s - since_s
        return min(longest_s, due_s, self.term.guard.pause_s(), *(duty.pause_s(this_round) for duty in self.duties))
