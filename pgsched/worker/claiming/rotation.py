"""The rotation of queues: which queues a round of claims tries, and in what order.

Invariant: no queue keeps the others from being tried. That holds for a queue that never runs dry, for one whose claims
fail, and for one whose runs wait for a free place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from pgsched.core.model import Claim

AT_ONCE = 100  # how many queues are tried because a place is free


class Rotation:
    """The queues of one claimer.

    - `claimed_counts`: how many runs of each queue this round has claimed.
    - `wanting_place`: queues that may have runs left for lack of a free place, in the order to try them. True: a claim
      that tried the queue took a run that needs a place.
    """

    def __init__(self) -> None:
        self.claimed_counts: dict[str, int] = {}
        self.wanting_place: dict[str, bool] = {}
        self._hinted: dict[str, None] = {}  # queues that got work, or may have more
        self._lately: list[str] = []  # queues of which the last round claimed runs
        self._failed: list[str] = []  # the queue whose claim failed; the next round tries it last, once
        self._failed_before: list[str] = []  # the queue that this round tries last
        self._trying: list[str] = []
        self._no_room: list[str] = []
        self._full: list[str] = []

    @property
    def has_hints(self) -> bool:
        """Whether a queue may have work."""
        return bool(self._hinted)

    @property
    def has_left_something(self) -> bool:
        """Whether this round left a queue that may have more."""
        return bool(self._no_room or self._full)

    @property
    def count(self) -> int:
        """How many runs this round has claimed."""
        return sum(self.claimed_counts.values())

    def hint(self, *queues: str) -> None:
        """Note that these queues may have work, also for a worker without a free place."""
        for queue in queues:
            self._hinted[queue] = None
            self.wanting_place.pop(queue, None)

    def took(self, queue: str, count: int) -> None:
        """Note that `count` runs of this queue were claimed."""
        self.claimed_counts[queue] = self.claimed_counts.get(queue, 0) + count

    def no_room(self, *queues: str) -> None:
        """Note that there was no room for runs of these queues."""
        self._no_room += queues

    def full(self, queue: str) -> None:
        """Note that this queue had as many runs as the claim asked for."""
        self._full.append(queue)

    def begin(self) -> list[str]:
        """Begin a round; return the queues to try first: those hinted, and those that had work lately."""
        self._failed_before, self._failed = self._failed, []
        self._trying = [
            queue for queue in self._hinted | dict.fromkeys(self._lately) if queue not in self._failed_before
        ]
        self._hinted, self.claimed_counts, self._no_room, self._full = {}, {}, [], []
        return self._trying

    def known(self, idle: bool) -> set[str]:
        """Return the queues that a look may leave out: this round or the next tries them in any case."""
        # a queue that was empty must be looked for again, unless the next round tries it without a look
        again = [] if self.claimed_counts or idle else self._lately
        return {*self._no_room, *self._full, *self.claimed_counts, *self._failed_before, *again}

    def others(self, found: Iterable[str]) -> list[str]:
        """Return the queues to try after the first ones: those that a look found, and the one whose claim failed."""
        others = [*(queue for queue in found if queue not in self._hinted), *self._failed_before]
        self._trying = [*self._trying, *others]
        return others

    def end(self, idle: bool) -> None:
        """End the round.

        Queues without room come first in the next round, so that a queue that never runs dry does not starve them.
        """
        if self.claimed_counts or idle:
            self._lately = list(self.claimed_counts)  # after one empty round the next still tries these queues
        hinted = [queue for queue in self._hinted if queue not in self._full]
        self._hinted = dict.fromkeys([*self._no_room, *hinted, *self._full])

    def failed(self, queue: str | None) -> None:
        """End the round after an error, in the claim of this queue if one is given; the next round tries all again."""
        self._failed = [] if queue is None else [queue]
        self._hinted, self._lately = dict.fromkeys([*self._hinted, *self._trying]), []

    def note_wanting(self, queues: Sequence[str], first: int, claims: Sequence[Claim], places: int) -> bool:
        """Note which of these queues may have runs left that count as begun once claimed, because no place is free.

        Only the queues from index `first` on count. `places`: how many places were free. The first queue that was
        served comes last in the next round. Returns whether anything may be left.
        """
        served = places > 0 and begin_at_once(claims) >= places
        left = served or (places <= 0 and not claims)
        first = first if left else len(queues)
        for queue in queues[:first] if self.wanting_place else ():
            self.wanting_place.pop(queue, None)
        for queue in queues[first:]:
            self.wanting_place[queue] = self.wanting_place.get(queue, False) or served
        if served:
            del self.wanting_place[queues[first]]
            self.wanting_place[queues[first]] = True
        return left

    def allowed(self, queues: list[str], n: int, places: Callable[[], int]) -> tuple[list[str], int]:
        """Return which of these queues to try, and for how many of `n` claims.

        Queues that want a place are tried only when a place is free, and for no more runs than there are places.
        """
        if not self.wanting_place or self.wanting_place.keys().isdisjoint(queues):
            return queues, n
        if (free := places()) > 0:
            return queues, min(n, free) if any(map(self.wanting_place.get, queues)) else n
        return [queue for queue in queues if queue not in self.wanting_place], n

    def hint_wanting(self) -> bool:
        """Hint some of the queues that want a place, because one is free; return whether there are any."""
        self._hinted |= dict.fromkeys(islice(self.wanting_place, AT_ONCE))
        return bool(self.wanting_place)


def sorted_by_queue(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """Return the claims of each queue, in their order."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.queue, []).append(claim)
    return found


def begin_at_once(claims: Sequence[Claim]) -> int:
    """Return how many of these claims count as begun and need a place each (attempts/capacity.py).

    A suspect run is claimed alone.
    """
    return [claim.max_attempts for claim in claims].count(1) or int(any(claim.suspect for claim in claims[:1]))
