"""The queues that a claimer knows: those that it was started for, and those in which the database showed it work.

Invariant: a notification adds none. It carries a mark of a queue's name, not the name, and one that stands for no known
queue makes the claimer look at the database. What is known is bounded: the queue that was not used for longest goes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

from pgsched.worker.claiming.cursor import Cursor, Rescans

MOST_KNOWN = 10_000
MOST_CURSORS = 1000
FEW, TOGETHER = 2, 100  # queues: more than so few are claimed of together, up to so many by one statement


def mark(queue: str) -> str:
    """What a notification says of a queue, as `pgsched.queue_mark` does: who listens learns no names."""
    return sha256(queue.encode()).hexdigest()[:16]


class KnownQueues:
    """Names by mark, and a claim cursor for each queue that was claimed of lately."""

    def __init__(self, given: Iterable[str]) -> None:
        self._given = {mark(queue): queue for queue in given}
        self._names: dict[str, str] = {mark("default"): "default"} if not self._given else {}
        self._rescans = Rescans()
        self._cursors: dict[str, Cursor] = {}

    def __len__(self) -> int:
        return len(self._given) + len(self._names)

    def learn(self, queues: Iterable[str]) -> None:
        """There is work in these queues, says the database."""
        for queue in queues:
            key = mark(queue)
            self._names.pop(key, None)  # the last is the one that was used last
            if key not in self._given:
                self._names[key] = queue
        while len(self._names) > MOST_KNOWN:
            del self._names[next(iter(self._names))]

    def of(self, mark: str) -> str | None:
        """The queue that a notification is about, if it is known."""
        return self._given.get(mark) or self._names.get(mark)

    def cursor(self, queue: str) -> Cursor:
        """The claim cursor of a queue, a new one where there is none."""
        found = self._cursors.pop(queue, None) or Cursor(self._rescans)
        self._cursors[queue] = found
        if len(self._cursors) > MOST_CURSORS:
            self._rescans.forget(self._cursors.pop(next(iter(self._cursors))))
        return found

    def groups(self, queues: Sequence[str], *, singly: bool) -> Iterator[list[str]]:
        """The queues in order; those that are quick to scan, and so claimed of together, in a list, unless `singly`."""
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
