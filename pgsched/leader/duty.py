"""Duty: the base class of the leader's recurring work. Each duty owns its state and its period.

Invariant: a duty's period starts anew before the duty is done, so that a failing duty is not tried in every round.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pgsched.db.queries.leader.leadership import DueWork
from pgsched.leader.isolation.duty_guard import Pieces
from pgsched.leader.term import Term
from pgsched.leader.timing.periodic import Periodic

BATCH = 5000  # rows of most duties in one round


@dataclass(slots=True)
class Round:
    """One round of the leader: the result of its look, and how far its duties are.

    `began`: monotonic instant.
    `asked_for_figures`: the look asked whether there is something to count.
    `trusted_at`: monotonic instant from which the database's clock is trusted.
    `freed`: claims taken back and circles ended; runs may have waited for them.
    `useful`: something was done.
    """

    began: float
    look: DueWork
    asked_for_figures: bool
    trusted_at: float = -math.inf
    freed: int = 0
    useful: bool = False

    @property
    def trusted(self) -> bool:
        """Whether decisions may rely on the database's clock."""
        return self.began >= self.trusted_at


class Duty(ABC):
    """One duty of one term. `pieces`: how to do it a few rows at a time after it has failed as a whole."""

    name: ClassVar[str]  # shown to people, and stored in `pgsched.set_aside`
    repeats: ClassVar[bool] = True  # if the duty did something, another round follows at once

    def __init__(self, term: Term, pieces: Sequence[Pieces] = ()) -> None:
        self.term = term
        self.pieces = pieces

    @abstractmethod
    def start(self, this_round: Round) -> bool:
        """Check whether the duty is to be done in this round; if so, start its period anew."""

    @abstractmethod
    def run(self, this_round: Round) -> int:
        """Do one batch; return how much was done."""

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until the duty may be due, after a round that did nothing.

        Infinite where only the look shows that it is due.
        """
        return math.inf

    def give_workers_time(self, seconds: float) -> None:  # noqa: B027
        """Give workers `seconds` to report: the database was away, or its clock was moved."""


class PeriodicDuty(Duty):
    """A duty that is done once a period, in a round that takes place anyway, and not in a lull.

    `needs_clock`: it relies on the database's clock, and waits while that clock is not trusted.
    """

    repeats = False
    needs_clock: ClassVar[bool] = False

    def __init__(self, term: Term, period: Periodic, pieces: Sequence[Pieces] = ()) -> None:
        super().__init__(term, pieces)
        self.period = period

    def start(self, this_round: Round) -> bool:
        """Check whether the period is over and the clock is good enough; if so, start the period anew."""
        may = this_round.trusted or not self.needs_clock
        return may and self.period.start(this_round.began, lull=self.term.lull)

    def pause_s(self, this_round: Round) -> float:
        """Return the seconds until the period is over."""
        not_before = this_round.trusted_at if self.needs_clock else -math.inf
        return self.period.pause_s(self.term.lull_until, not_before)
