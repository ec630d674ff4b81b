"""Which queues a round of claims tries, and in what order.

Invariant: no queue keeps the others from being tried, neither one that never runs dry nor one whose claims fail.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgsched.core.model import Claim


class Rotation:
    """The queues of one claimer. `taken`: how many runs of each queue the present round has claimed."""

    def __init__(self) -> None:
        self.taken: dict[str, int] = {}
        self.wanting: set[str] = set()  # of these something may have been left for want of a free place
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
        """This queue may have work."""
        self._hinted[queue] = None

    def took(self, queue: str, count: int) -> None:
        """So many runs of this queue were claimed."""
        self.taken[queue] = self.taken.get(queue, 0) + count

    def no_room(self, queue: str) -> None:
        """There was no room for runs of this queue."""
        self._no_room.append(queue)

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

    def note_wanting(self, queues: list[str], *, nothing: bool) -> None:
        """What comes first in these queues may be such as begins at once, and there was no free place for it; unless
        something was taken."""
        if nothing:
            self.wanting.update(queues)
        elif self.wanting:
            self.wanting.difference_update(queues)

    def hint_wanting(self) -> bool:
        """There is a free place: try those queues. Are there any?"""
        for queue in self.wanting:
            self.hint(queue)
        return bool(self.wanting)


def sorted_by_queue(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    """The claims of each queue, in their order."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.queue, []).append(claim)
    return found
