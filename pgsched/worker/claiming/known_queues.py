"""The queues that a claimer knows: those it was started for, and those in which the database has shown work.

Invariant: a notification adds no queue. It carries a mark of a queue's name, not the name. A mark of no known queue
makes the claimer look at the database. The number of known queues is bounded: the one that was unused for longest is
dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from pgsched.worker.claiming.cursor import Cursor, Rescans

MOST_KNOWN = 10_000
MOST_CURSORS = 1000
FEW, TOGETHER = 2, 100  # more queues than FEW are claimed from together, up to TOGETHER in one statement


def mark(queue: str) -> str:
    """Return the mark by which a notification names a queue, as `pgsched.queue_mark` does: listeners learn no names."""
    return sha256(queue.encode()).hexdigest()[:16]


class KnownQueues:
    """The known queues by their marks, and a claim cursor for each queue that was claimed from lately."""

    def __init__(self, given: Iterable[str]) -> None:
        self._given = {mark(queue): queue for queue in given}
        self._names: dict[str, str] = {mark("default"): "default"} if not self._given else {}
        self._rescans = Rescans()
        self._cursors: dict[str, Cursor] = {}

    def __len__(self) -> int:
        return len(self._given) + len(self._names)

    def learn(self, queues: Iterable[str]) -> None:
        """Add queues in which the database has shown work."""
        for queue in queues:
            key = mark(queue)
            self._names.pop(key, None)  # re-inserted, so that the last one is the one used last
            if key not in self._given:
                self._names[key] = queue
        while len(self._names) > MOST_KNOWN:
            del self._names[next(iter(self._names))]

    def of(self, mark: str) -> str | None:
        """Return the queue with this mark, or None where it is not known."""
        return self._given.get(mark) or self._names.get(mark)

    def cursor(self, queue: str) -> Cursor:
        """Return the claim cursor of a queue, a new one where there is none."""
        found = self._cursors.pop(queue, None) or Cursor(self._rescans)
        self._cursors[queue] = found
        if len(self._cursors) > MOST_CURSORS:
            self._rescans.forget(self._cursors.pop(next(iter(self._cursors))))
        return found

    def groups(self, queues: Sequence[str], *, singly: bool) -> Iterator[list[str]]:
        """Yield the queues in order, in lists: quick ones together, each slow one alone; each alone if `singly`."""
        now, group = time.monotonic(), list[str]()
        for queue in queues:
            plain = not singly and len(queues) > FEW and self.cursor(queue).is_plain(now)
            if group and (not plain or len(group) == TOGETHER):
                yield group
                group = []
            group.append(queue)
            if not plain:
                yield group
                group = []
        if group:
            yield group
