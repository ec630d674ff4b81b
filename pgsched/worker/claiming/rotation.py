"""Which queues a round of claims tries, and in what order.

Invariant: no queue keeps the others from being tried, neither one that never runs dry nor one whose claims fail, nor
one whose runs wait for a free place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from pgsched.core.model import Claim

AT_ONCE = 100  # queues that are tried because there is a free place


class Rotation:
    """The queues of one claimer. `taken`: how many runs of each queue the present round has claimed."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        # something may be left here for want of a free place (True: one was taken), the next one to be tried first
        self.wanting: dict[str, bool] = {}
        self._hinted: dict[str, None] = {}  # they got work, or may have more
        self._lately: list[str] = []  # of these the last round claimed runs
        self._failed: list[str] = []  # the queue whose claim failed is tried last, once
        self._last: list[str] = []  # the same, of the present round
        self._trying: list[str] = []
        self._no_room: list[str] = []
        self._full: list[str] = []

    @property
    def has_hints(self) -> bool:
        """Is there a queue that may have work?"""
        return bool(self._hinted)

    @property
    def has_left_something(self) -> bool:
        """Has this round left a queue that may have more?"""
        return bool(self._no_room or self._full)

    @property
    def count(self) -> int:
        """How many runs this round has claimed."""
        return sum(self.taken.values())

    def hint(self, queue: str) -> None:
        """This queue may have work, also for whoever has no free place."""
        self._hinted[queue] = None
        self.wanting.pop(queue, None)

    def took(self, queue: str, count: int) -> None:
        """So many runs of this queue were claimed."""
        self.taken[queue] = self.taken.get(queue, 0) + count

    def no_room(self, *queues: str) -> None:
        """There was no room for runs of these queues."""
        self._no_room += queues

    def full(self, queue: str) -> None:
        """This queue had as many runs as were asked for."""
        self._full.append(queue)

    def begin(self) -> list[str]:
        """A round begins: the queues that it tries first, those hinted and those that had work."""
        self._last, self._failed = self._failed, []
        self._trying = [queue for queue in self._hinted | dict.fromkeys(self._lately) if queue not in self._last]
        self._hinted, self.taken, self._no_room, self._full = {}, {}, [], []
        return self._trying

    def known(self, idle: bool) -> set[str]:
        """The queues that need not be looked for: they are tried in this round or the next in any case."""
        # what came into a queue that was found empty is to be seen, unless the next round may try it without a look
        again = [] if self.taken or idle else self._lately
        return {*self._no_room, *self._full, *self.taken, *self._last, *again}

    def others(self, found: Iterable[str]) -> list[str]:
        """The queues that the round tries after the first: those that a look found, and the one whose claim failed."""
        others = [*(queue for queue in found if queue not in self._hinted), *self._last]
        self._trying = [*self._trying, *others]
        return others

    def end(self, idle: bool) -> None:
        """The round is over. What there was no room for comes first in the next: a queue that never runs dry must not
        starve it."""
        if self.taken or idle:
            self._lately = list(self.taken)  # one look in vain is no reason to look nowhere at the next
        hinted = [queue for queue in self._hinted if queue not in self._full]
        self._hinted = dict.fromkeys([*self._no_room, *hinted, *self._full])

    def failed(self, queue: str | None) -> None:
        """The round was cut short, by the claim of this queue if one is given: the next is for all that it was for."""
        self._failed = [] if queue is None else [queue]
        self._hinted, self._lately = dict.fromkeys([*self._hinted, *self._trying]), []

    def note_wanting(self, queues: Sequence[str], first: int, claims: Sequence[Claim], places: int) -> bool:
        """These were tried when so many places were free. May something be left, from the `first` of them on, that
        begins once it is claimed, because no place is free any more? The first that was served comes last then."""
        served = places > 0 and begin_at_once(claims) >= places
        left = served or (places <= 0 and not claims)
        first = first if left else len(queues)
        for queue in queues[:first] if self.wanting else ():
            self.wanting.pop(queue, None)
        for queue in queues[first:]:
            self.wanting[queue] = self.wanting.get(queue, False) or served
        if served:
            del self.wanting[queues[first]]
            self.wanting[queues[first]] = True
        return left

    def allowed(self, queues: list[str], n: int, places: Callable[[], int]) -> tuple[list[str], int]:
        """Which of these to try for how many of `n` claims: what wants a place when there is one, and for no more."""
        if not self.wanting or self.wanting.keys().isdisjoint(queues):
            return queues, n
        if (free := places()) > 0:
            return queues, min(n, free) if any(map(self.wanting.get, queues)) else n
        return [queue for queue in queues if queue not in self.wanting], n

    def hint_wanting(self) -> bool:
        """There is a free place: try some of those queues. Are there any?"""
        self._hinted |= dict.fromkeys(islice(self.wanting, AT_ONCE))
        return bool(self.wanting)


def sorted_by_queue(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """The claims of each queue, in their order."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.queue, []).append(claim)
    return found


def begin_at_once(claims: Sequence[Claim]) -> int:
    """How many of these claims count as begun and need a place each (attempts/capacity.py). A suspect one is alone."""
    return [claim.max_attempts for claim in claims].count(1) or int(any(claim.suspect for claim in claims[:1]))
