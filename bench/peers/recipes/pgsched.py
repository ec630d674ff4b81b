"""pgsched's own recipes, with their defaults, on the App's own connections: `app.lock`, and `app.item_queue`.

An item is taken for good by `get` and `consume`: between them it is held, as in Kazoo's `LockingQueue`.
"""

from __future__ import annotations

from typing import Any

from bench.peers.recipes.verbs import Coordinator, Lock, Queue, main
from bench.peers.record import dsn
from pgsched import App
from pgsched.recipes.lock import Lock as PgschedLock

LONGEST_WAIT_S = 0.05
ITEM_QUEUE = "item_queue"  # the method of App


class OurLock(Lock):
    """A lock."""

    def __init__(self, lock: PgschedLock) -> None:
        self.lock = lock

    def acquire(self) -> int:
        return self.lock.acquire().fence

    def release(self) -> None:
        self.lock.release()


class OurQueue(Queue):
    """An item queue."""

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def put(self, item: int) -> None:
        self.queue.put(item)

    def take(self) -> int | None:
        try:
            item = self.queue.get(timeout=LONGEST_WAIT_S)
        except TimeoutError:
            return None
        item.consume()
        return int(item.value)


class Pgsched(Coordinator):
    """pgsched."""

    def open(self) -> None:
        self.app = App("bench", dsn=dsn())
        self.idle: list[PgschedLock] = []

    def lock(self, name: str) -> Lock:
        return OurLock(self.app.lock(name))

    def hold(self, name: str, n: int) -> None:
        self.idle = [self.app.lock(f"{name}/{i}").acquire() for i in range(n)]

    def held(self, name: str) -> int:
        return sum(1 for lock in self.idle if lock.is_held and lock.line()[0].fence == lock.fence)

    def queue(self, name: str) -> Queue:
        return OurQueue(getattr(self.app, ITEM_QUEUE)(name))

    def close(self) -> None:
        self.app.close()


if __name__ == "__main__":
    main(Pgsched())
