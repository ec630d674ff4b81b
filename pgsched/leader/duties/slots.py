"""Duties that decide slots: the tick, plans of former leaders, slots that were passed over, and backfills."""

from __future__ import annotations

import math
import time

from pgsched import log
from pgsched.db.connection.failures import first_line
from pgsched.db.queries.jobs.shared_calendars import CalendarCache
from pgsched.leader import backfill, passed_over
from pgsched.leader.duties.next_slots import NextSlots
from pgsched.leader.duty import Duty, Round
from pgsched.leader.isolation import pieces
from pgsched.leader.isolation.duty_guard import FEW
from pgsched.leader.isolation.set_aside import JOB_MOST_S
from pgsched.leader.replanning import Replanning
from pgsched.leader.term import Term
from pgsched.leader.ticker import TickResult, tick
from pgsched.leader.timing.floors import Floors
from pgsched.leader.timing.preparation import NotAsPrepared, PreparationLead

logger = log.get("leader")
LULL_S = 0.03  # lull after a tick: housekeeping would keep the workers from starting the due runs


class TickDuty(Duty):
    """The duty that decides the jobs that are due, or prepares those due soon.

    `lead`: how soon.
    `next_slots`: is told which jobs were decided.
    `calendars`: the times of shared calendars.
    """

    name = "tick"

    def __init__(self, term: Term, floors: Floors, next_slots: NextSlots) -> None:
        super().__init__(term, pieces.job_pieces(term, self._decide_all, term.settings.tick_batch))
        self.lead = PreparationLead()
        self.next_slots = next_slots
        self.calendars = CalendarCache()
        self._floors = floors

    def start(self, this_round: Round) -> bool:
        """Check whether jobs are due and the database's clock is trusted."""
        return this_round.look.jobs and this_round.trusted

    def run(self, this_round: Round) -> int:
        """Decide one batch of due jobs; return how many."""
        return self._decide(self.term.settings.tick_batch, self._floors.instants.job_s, most_failed=FEW)

    def _decide_all(self, n: int) -> int:
        """Decide up to `n` jobs, however long they have been due."""
        return self._decide(n, -math.inf, most_failed=0)

    def _decide(self, n: int, since_s: float, most_failed: int) -> int:
        """Decide up to `n` jobs that became due after `since_s` (seconds since 1970); return how many.

        Jobs whose rows could not be written stay due, and are set aside. If no job was decided and more than
        `most_failed` were refused, the first error is raised.
        """
        began = time.monotonic()
        lead_s = self.lead.s(began)
        try:
            with self.term.leading() as conn:
                done = tick(
                    conn, n, lead_s, self.term.set_aside.skipped_ids(pieces.JOBS), since_s, calendars=self.calendars
                )
                took_s = time.monotonic() - began
                if not done.jobs and len(done.failed) > most_failed:
                    raise next(iter(done.failed.values()))
                if done.jobs:
                    self.lead.took(took_s)
                if done.instant is not None:
                    self.lead.wait(conn, done, done.instant, lead_s)
        except NotAsPrepared as reason:
            logger.debug("prepared in vain", reason=str(reason))
            return 0
        self._note(done, took_s)
        return done.jobs

    def _note(self, done: TickResult, took_s: float) -> None:
        """Set failed jobs aside, begin a lull, and count and log what the batch did."""
        if done.failed:
            rows = ((str(job), first_line(error)) for job, error in done.failed.items())
            self.term.guard.set_aside(pieces.JOBS, rows, proven=done.jobs > 0, doubled_to_s=JOB_MOST_S)
        if done.slots:
            self.term.lull_until = time.monotonic() + LULL_S
        for job, decided in done.parts:
            self.next_slots.note_tick(job, decided.advance, fired=bool(decided.rows))
        if self.term.meter is not None:
            self.term.meter.record_tick(took_s, done.jobs, done.slots)
        if done.errors:
            logger.warning("jobs in error", count=done.errors)
        if done.slots:
            logger.debug("ticked", jobs=done.jobs, slots=done.slots)


class ReplanningDuty(Duty):
    """The duty that plans jobs again whose next slot is another one by the time zone rules of this process."""

    name = "replanning"

    def __init__(self, term: Term) -> None:
        super().__init__(term)
        self._replanning = Replanning()

    def start(self, this_round: Round) -> bool:
        """Check whether the next look is due."""
        return this_round.began >= self._replanning.at

    def run(self, this_round: Round) -> int:
        """Look at some jobs; return 0 when nothing further can be done at once."""
        return self._replanning.check_jobs(self.term.conn, self.term.leading)


class PassedOverDuty(Duty):
    """The duty that records the slots which an edit or a resume passed over."""

    name = "passed over slots"

    def __init__(self, term: Term) -> None:
        super().__init__(term, pieces.stretches(term))

    def start(self, this_round: Round) -> bool:
        """Check whether the look found passed-over slots."""
        return this_round.look.passed_over

    def run(self, this_round: Round) -> int:
        """Record one batch of stretches; return how many."""
        with self.term.leading() as conn:
            return passed_over.record_stretches(conn, set_aside_ids=self.term.set_aside.skipped_ids(pieces.STRETCHES))


class BackfillsDuty(Duty):
    """The duty that starts runs of open backfills."""

    name = "backfills"

    def __init__(self, term: Term) -> None:
        super().__init__(term, pieces.no_pieces(pieces.BACKFILLS))
        self._turn = backfill.BackfillCursor()

    def start(self, this_round: Round) -> bool:
        """Check whether there are open backfills."""
        return this_round.look.backfills

    def run(self, this_round: Round) -> int:
        """Do one batch; return 1 if more can be done at once, else 0."""
        with self.term.leading() as conn:
            done = backfill.run_backfills(conn, self._turn, self.term.set_aside.skipped_ids(pieces.BACKFILLS))
        pieces.set_aside_failed(self.term, pieces.BACKFILLS, done.failed, done.advanced)
        return int(done.more)

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until the next look at the open backfills; infinite if there are none."""
        return self._turn.pause_s() if this_round.look.backfills else math.inf


class LookBelowDuty(Duty):
    """The duty that finds rows which became visible below the instants at which the look begins."""

    name = "looking below"

    def __init__(self, term: Term, floors: Floors) -> None:
        super().__init__(term)
        self._floors = floors

    def start(self, this_round: Round) -> bool:
        """Check whether the next look below is due."""
        return this_round.began >= self._floors.next_at

    def run(self, this_round: Round) -> int:
        """Look at one piece; return 1 if something was found there, else 0."""
        return self._floors.look_below(self.term.conn, this_round.began)
