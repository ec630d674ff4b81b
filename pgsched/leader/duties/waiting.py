"""Duties that let waiting runs go: limits, circles, dependencies, and what only time or other runs of a job hold."""

from __future__ import annotations

import math

from pgsched.db.queries.leader import ticks
from pgsched.db.queries.runs import dependencies
from pgsched.leader import admission
from pgsched.leader.circles import Circles
from pgsched.leader.dependents import CHUNK, JUDGED, Turn, resolve
from pgsched.leader.duty import BATCH, Duty, Round
from pgsched.leader.isolation import pieces
from pgsched.leader.term import Term
from pgsched.leader.timing.floors import Floors

WAITING_PAUSE_S = 1.0
UNAPPLIED_PAUSE_S = 0.2


class ChangedLimitsDuty(Duty):
    """Puts limits that were changed in force. `standing` is shared with LimitsDuty."""

    name = "changed limits"

    def __init__(self, term: Term, standing: admission.Standing) -> None:
        super().__init__(term)
        self._standing = standing

    def start(self, this_round: Round) -> bool:
        return this_round.look.unapplied

    def run(self, this_round: Round) -> int:
        with self.term.leading() as conn:
            return admission.apply(conn, self._standing)

    def pause_s(self, this_round: Round) -> float:
        return UNAPPLIED_PAUSE_S if this_round.look.unapplied else math.inf


class LimitsDuty(Duty):
    """Admits runs that only limits hold."""

    name = "limits"

    def __init__(self, term: Term, standing: admission.Standing) -> None:
        super().__init__(term, pieces.limited(term, standing))
        self._standing = standing

    def start(self, this_round: Round) -> bool:
        return this_round.look.limited or this_round.look.unapplied

    def run(self, this_round: Round) -> int:
        this_round.useful |= pieces.limit(self.term, self._standing) > 0
        return int(self._standing.more)

    def pause_s(self, this_round: Round) -> float:
        if not this_round.look.limited:
            return math.inf
        return min(WAITING_PAUSE_S, math.inf if self._standing.wait_s is None else self._standing.wait_s)


class CirclesDuty(Duty):
    """Ends runs that wait for each other in a circle."""

    name = "circles"

    def __init__(self, term: Term) -> None:
        super().__init__(term)
        self._circles = Circles()

    def start(self, this_round: Round) -> bool:
        return this_round.look.waiting and this_round.began >= self._circles.at

    def run(self, this_round: Round) -> int:
        ended = self._circles.work(self.term.conn, self.term.leading)
        this_round.freed += ended
        return ended


class DependenciesDuty(Duty):
    """Lets runs go, or ends them, when the runs that they waited for have ended."""

    name = "dependencies"

    def __init__(self, term: Term) -> None:
        super().__init__(term, pieces.dependents(term, min(BATCH, CHUNK)))
        self._turn = Turn()

    def start(self, this_round: Round) -> bool:
        return may_release(this_round)

    def run(self, this_round: Round) -> int:
        again = [int(row) for row in self.term.set_aside.over(JUDGED)]
        turn, self._turn = self._turn, Turn()  # where it fails, what was marked is not
        with self.term.leading() as conn:
            if again:
                dependencies.judge(conn, again)
            done = resolve(conn, BATCH, turn, self.term.set_aside.numbers)
        self._turn = turn
        return done

    def pause_s(self, this_round: Round) -> float:
        return WAITING_PAUSE_S if this_round.look.waiting else math.inf


class AdmissionDuty(Duty):
    """Makes runs claimable that only time, or other runs of their job, held."""

    name = "admission"

    def __init__(self, term: Term, floors: Floors) -> None:
        super().__init__(term, pieces.admitting(term, BATCH))
        self._floors = floors

    def start(self, this_round: Round) -> bool:
        return this_round.trusted and may_release(this_round)

    def run(self, this_round: Round) -> int:
        with self.term.leading() as conn:
            return ticks.admit(conn, BATCH, self.term.set_aside.numbers, self._floors.since)


def may_release(this_round: Round) -> bool:
    """Whether a run may have nothing to wait for any more: also for what this round has freed."""
    return this_round.look.runs or this_round.look.waiting or this_round.freed > 0
