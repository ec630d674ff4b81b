"""Kazoo on one ZooKeeper server, with Kazoo's defaults: `Lock`, and `Queue` or `LockingQueue` (BENCH_LOCKING=1).

The idle locks are ephemeral nodes of one session, without the parent node that each `Lock` has. A grant's number is
that of its node, which ZooKeeper gives. `LockingQueue` takes an item for good by `get` and `consume`.
"""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock as KazooLock
from kazoo.recipe.queue import LockingQueue
from kazoo.recipe.queue import Queue as KazooQueue

from bench.peers.recipes.verbs import Coordinator, Lock, Queue, main
from bench.peers.record import dsn, number

LONGEST_WAIT_S = 0.05


class LockOfKazoo(Lock):
    """A lock."""

    def __init__(self, lock: KazooLock) -> None:
        self.lock = lock

    def acquire(self) -> int:
        self.lock.acquire()
        return int(self.lock.node[-10:]) + 1

    def release(self) -> None:
        if not self.lock.release():
            raise RuntimeError("it was not held")


class QueueOfKazoo(Queue):
    """The plain queue, of which an item is gone when it has been read."""

    def __init__(self, queue: KazooQueue) -> None:
        self.queue = queue

    def put(self, item: int) -> None:
        self.queue.put(b"%d" % item)

    def take(self) -> int | None:
        item = self.queue.get()
        return None if item is None else int(item)


class LockingQueueOfKazoo(Queue):
    """The queue that keeps an item until it is consumed."""

    def __init__(self, queue: LockingQueue) -> None:
        self.queue = queue

    def put(self, item: int) -> None:
        self.queue.put(b"%d" % item)

    def take(self) -> int | None:
        item = self.queue.get(timeout=LONGEST_WAIT_S)
        if item is None:
            return None
        if not self.queue.consume():
            raise RuntimeError("it was not held")
        return int(item)


class Kazoo(Coordinator):
    """Kazoo."""

    def open(self) -> None:
        self.client = KazooClient(hosts=dsn())
        self.client.start()

    def lock(self, name: str) -> Lock:
        return LockOfKazoo(self.client.Lock(f"/{name}"))

    def hold(self, name: str, n: int) -> None:
        self.client.ensure_path(f"/{name}")
        for i in range(n):
            self.client.create(f"/{name}/{i}", ephemeral=True)

    def held(self, name: str) -> int:
        return len(self.client.get_children(f"/{name}"))

    def queue(self, name: str) -> Queue:
        if number("LOCKING", 0):
            return LockingQueueOfKazoo(self.client.LockingQueue(f"/{name}"))
        return QueueOfKazoo(self.client.Queue(f"/{name}"))

    def close(self) -> None:
        self.client.stop()
        self.client.close()


if __name__ == "__main__":
    main(Kazoo())
