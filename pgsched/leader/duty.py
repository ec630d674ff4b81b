"""What the leader does again and again: each duty owns its state and its period.

Invariant: a duty's period starts anew before the duty is done, so that one that fails is not tried in every round.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pgsched.db.queries.leader.leadership import Look
from pgsched.leader.isolation.guard import Pieces
from pgsched.leader.term import Term
from pgsched.leader.timing.periodic import Periodic

BATCH = 5000  # rows of most duties in one round


@dataclass(slots=True)
class Round:
    """One round of the leader: what its look found, and what its duties did so far.

    `began`: monotonic instant. `figures`: the look asked whether there is something to count. `trusted_at`: monotonic
    instant from which on the database's clock is believed. `freed`: claims taken back and circles ended; runs may have
    waited for them. `useful`: something was done.
    """

    began: float
    look: Look
    figures: bool
    trusted_at: float = -math.inf
    freed: int = 0
    useful: bool = False

    @property
    def trusted(self) -> bool:
        """Whether decisions may be made by the database's clock."""
        return self.began >= self.trusted_at


class Duty(ABC):
    """One duty of one term. `pieces`: how it is done a few rows at a time after it has failed as a whole."""

    name: ClassVar[str]  # people read it, and `pgsched.set_aside` holds it
    again: ClassVar[bool] = True  # another round follows at once when the duty did something

    def __init__(self, term: Term, pieces: Sequence[Pieces] = ()) -> None:
        self.term = term
        self.pieces = pieces

    @abstractmethod
    def start(self, this_round: Round) -> bool:
        """Whether the duty is to be done in this round; if so, its period starts anew."""

    @abstractmethod
    def run(self, this_round: Round) -> int:
        """Do one batch; returns how much was done."""

    def pause_s(self, this_round: Round) -> float:
        """Seconds until the duty may have something to do, after a round that did nothing; infinite: the look tells."""
        return math.inf

    def give_workers(self, seconds: float) -> None:  # noqa: B027
        """The database was away, or its clock was moved: workers get so many seconds to be heard of again."""


class PeriodicDuty(Duty):
    """A duty that is done once a period, in a round that there is anyway, and not in a lull.

    `by_clock`: it decides by the database's clock, and waits while that is not believed.
    """

    again = False
    by_clock: ClassVar[bool] = False

    def __init__(self, term: Term, period: Periodic, pieces: Sequence[Pieces] = ()) -> None:
        super().__init__(term, pieces)
        self.period = period

    def start(self, this_round: Round) -> bool:
        may = this_round.trusted or not self.by_clock
        return may and self.period.start(this_round.began, lull=self.term.lull)

    def pause_s(self, this_round: Round) -> float:
        not_before = this_round.trusted_at if self.by_clock else -math.inf
        return self.period.pause_s(self.term.lull_until, not_before)
