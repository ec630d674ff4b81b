"""Duties that release waiting runs: limits, circles, dependencies, and runs that wait for time or their own job."""

from __future__ import annotations

import math

from pgsched.db.queries.leader import ticks
from pgsched.db.queries.runs import dependencies
from pgsched.leader import admission, changed_limits
from pgsched.leader.circles import CircleSearch
from pgsched.leader.dependents import CHUNK, JUDGED, DependencyCursor, decide_dependencies
from pgsched.leader.duty import BATCH, Duty, Round
from pgsched.leader.isolation import pieces
from pgsched.leader.term import Term
from pgsched.leader.timing.floors import Floors

WAITING_PAUSE_S = 1.0  # between two checks of waiting runs
UNAPPLIED_PAUSE_S = 0.2  # between two tries to put a changed limit in force


class ChangedLimitsDuty(Duty):
    """The duty that puts changed limits in force. `admission_state`: shared with LimitsDuty."""

    name = "changed limits"

    def __init__(self, term: Term, admission_state: admission.AdmissionState) -> None:
        super().__init__(term)
        self._admission_state = admission_state

    def start(self, this_round: Round) -> bool:
        """Check whether limits were changed."""
        return this_round.look.unapplied

    def run(self, this_round: Round) -> int:
        """Take back admitted runs that are beyond changed limits; return how many wait again."""
        with self.term.leading() as conn:
            return changed_limits.apply_changed_limits(conn, self._admission_state)

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until changed limits are checked again; infinite if there are none."""
        return UNAPPLIED_PAUSE_S if this_round.look.unapplied else math.inf


class LimitsDuty(Duty):
    """The duty that admits runs which only limits hold."""

    name = "limits"

    def __init__(self, term: Term, admission_state: admission.AdmissionState) -> None:
        super().__init__(term, pieces.limited(term, admission_state))
        self._admission_state = admission_state

    def start(self, this_round: Round) -> bool:
        """Check whether limits hold runs, or were changed."""
        return this_round.look.limited or this_round.look.unapplied

    def run(self, this_round: Round) -> int:
        """Do one pass over the waiting groups; return 1 if there is more to admit at once, else 0."""
        this_round.useful |= pieces.run_admission_pass(self.term, self._admission_state) > 0
        return int(self._admission_state.more)

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until a rate has a token again, or until the groups are to be looked at anyway."""
        if not this_round.look.limited:
            return math.inf
        return min(WAITING_PAUSE_S, math.inf if self._admission_state.wait_s is None else self._admission_state.wait_s)


class CirclesDuty(Duty):
    """The duty that ends runs which wait for each other in a circle."""

    name = "circles"

    def __init__(self, term: Term) -> None:
        super().__init__(term)
        self._circles = CircleSearch()

    def start(self, this_round: Round) -> bool:
        """Check whether runs wait for others, and the next look is due."""
        return this_round.look.waiting and this_round.began >= self._circles.at

    def run(self, this_round: Round) -> int:
        """Look at the next runs; return how many were ended."""
        ended = self._circles.look(self.term.conn, self.term.leading)
        this_round.freed += ended
        return ended


class DependenciesDuty(Duty):
    """The duty that releases or ends runs when the runs that they waited for have ended."""

    name = "dependencies"

    def __init__(self, term: Term) -> None:
        super().__init__(term, pieces.dependents(term, min(BATCH, CHUNK)))
        self._turn = DependencyCursor()

    def start(self, this_round: Round) -> bool:
        """Check whether a run may have nothing to wait for any more."""
        return may_release(this_round)

    def run(self, this_round: Round) -> int:
        """Decide one batch of edges; return how many runs were released or ended."""
        again = [int(row) for row in self.term.set_aside.rows_to_retry(JUDGED)]
        turn, self._turn = self._turn, DependencyCursor()  # if this fails, its marks are rolled back: begin anew
        with self.term.leading() as conn:
            if again:
                dependencies.admit_dependents(conn, again)
            done = decide_dependencies(conn, BATCH, turn, self.term.set_aside.skipped_ids)
        self._turn = turn
        return done

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until waiting runs are checked again; infinite if there are none."""
        return WAITING_PAUSE_S if this_round.look.waiting else math.inf


class AdmissionDuty(Duty):
    """The duty that makes runs claimable which only time, or other runs of their job, held."""

    name = "admission"

    def __init__(self, term: Term, floors: Floors) -> None:
        super().__init__(term, pieces.admitting(term, BATCH))
        self._floors = floors

    def start(self, this_round: Round) -> bool:
        """Check whether a run may have nothing to wait for any more, and the database's clock is trusted."""
        return this_round.trusted and may_release(this_round)

    def run(self, this_round: Round) -> int:
        """Admit one batch; return how many runs were made claimable or ended."""
        with self.term.leading() as conn:
            return ticks.admit(conn, BATCH, self.term.set_aside.skipped_ids, self._floors.instants)


def may_release(this_round: Round) -> bool:
    """Check whether a run may have nothing to wait for any more, also because this round has freed runs."""
    return this_round.look.runs or this_round.look.waiting or this_round.freed > 0
