"""The verbs of the contestants of `recipes`.

Invariant: a contestant only says how its library acquires, releases, puts and gets. When and how often this happens is
decided here, alike for all. Instants are of CLOCK_MONOTONIC, which all processes of a machine share. A verb that has
got ready says so, and begins at the instant that it then reads from stdin.

- `pairs`: acquire and release one lock, again and again, for BENCH_SECONDS
- `contend`: BENCH_THREADS threads acquire one lock, hold it for BENCH_HOLD_MS and release it, for BENCH_SECONDS
- `hold`: hold BENCH_N locks, and do nothing, until a line comes
- `alternate`: put an item and take it, again and again, for BENCH_SECONDS
- `produce`: put BENCH_N items; `consume`: take items until none came for LAST_WAIT_S
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.peers.record import number, say, text

WARM_UP = 200
SECOND = 1_000_000_000
LAST_WAIT_S, PAUSE_S = 3.0, 0.001


class Lock(ABC):
    """One contender for a lock."""

    @abstractmethod
    def acquire(self) -> int:
        """Wait for the lock; return the number of the grant, 0 where the contestant gives none."""

    @abstractmethod
    def release(self) -> None:
        """Give the lock back. Raises RuntimeError where it was not held."""


class Queue(ABC):
    """A queue of numbers."""

    @abstractmethod
    def put(self, item: int) -> None:
        """Put an item; returns once it is stored."""

    @abstractmethod
    def take(self) -> int | None:
        """Take the next item for good; return None where there is none."""


class Coordinator(ABC):
    """One contestant: a connection of one process."""

    @abstractmethod
    def open(self) -> None:
        """Connect."""

    @abstractmethod
    def lock(self, name: str) -> Lock:
        """Return a contender for this lock."""

    def hold(self, name: str, n: int) -> None:
        """Hold this many idle locks whose names begin with `name`."""
        raise NotImplementedError

    def held(self, name: str) -> int:
        """Return how many of them are held, as the server says."""
        raise NotImplementedError

    def queue(self, name: str) -> Queue:
        """Return a queue."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


def start() -> int:
    """Say that all is ready; return the instant at which to begin, when it has come."""
    say(ready=True)
    at = int(sys.stdin.readline())
    time.sleep(max(0, at - time.monotonic_ns()) / SECOND)
    return at


def pairs(on: Coordinator) -> None:
    """Acquire and release one lock, again and again."""
    lock, last, done = on.lock(text("NAME")), 0, 0
    for _ in range(WARM_UP):
        lock.acquire()
        lock.release()
    began = start()
    until = began + number("SECONDS", 5) * SECOND
    while time.monotonic_ns() < until:
        grant = lock.acquire()
        lock.release()
        done += 1
        if grant and grant <= last:
            raise RuntimeError(f"grant {grant} came after grant {last}")
        last = grant
    say(n=done, seconds=(time.monotonic_ns() - began) / SECOND)


def contend(on: Coordinator) -> None:
    """Acquire one lock in several threads; report of each turn when it was asked for, granted and given back."""
    threads = number("THREADS", 1)
    locks = [on.lock(text("NAME")) for _ in range(threads)]
    began = start()
    until, hold_s = began + number("SECONDS", 5) * SECOND, number("HOLD_MS", 10) / 1000
    with ThreadPoolExecutor(threads) as pool:
        turns = [turn for found in pool.map(lambda one: turns_of(one, until, hold_s), locks) for turn in found]
    say(turns=turns)


def turns_of(lock: Lock, until: int, hold_s: float) -> Sequence[tuple[int, int, int, int]]:
    """Return the turns of one contender: asked, granted and given back at which ns, and the number of the grant."""
    turns = []
    while (asked := time.monotonic_ns()) < until:
        grant = lock.acquire()
        granted = time.monotonic_ns()
        time.sleep(hold_s)
        given_back = time.monotonic_ns()
        lock.release()
        turns.append((asked, granted, given_back, grant))
    return turns


def hold(on: Coordinator) -> None:
    """Hold locks, and do nothing."""
    on.hold(text("NAME"), number("N", 1))
    start()
    say(held=on.held(text("NAME")))


def alternate(on: Coordinator) -> None:
    """Put an item and take it, again and again."""
    queue, done = on.queue(text("NAME")), 0
    for i in range(WARM_UP):
        put_and_take(queue, i)
    began = start()
    until = began + number("SECONDS", 5) * SECOND
    while time.monotonic_ns() < until:
        put_and_take(queue, done)
        done += 1
    say(n=done, seconds=(time.monotonic_ns() - began) / SECOND)


def put_and_take(queue: Queue, item: int) -> None:
    """Put an item, and take the same. Raises RuntimeError where it is another one."""
    queue.put(item)
    if (got := queue.take()) != item:
        raise RuntimeError(f"item {item} was put, {got} was taken")


def produce(on: Coordinator) -> None:
    """Put items."""
    queue, first = on.queue(text("NAME")), number("FIRST", 0)
    start()
    for i in range(number("N", 1000)):
        queue.put(first + i)
    say(ended=time.monotonic_ns())


def consume(on: Coordinator) -> None:
    """Take items until none came for a while; report which, and when the last one was taken."""
    queue, items = on.queue(text("NAME")), []
    ended = start()
    while time.monotonic_ns() < ended + LAST_WAIT_S * SECOND:
        if (item := queue.take()) is None:
            time.sleep(PAUSE_S)
            continue
        items.append(item)
        ended = time.monotonic_ns()
    say(items=items, ended=ended)


VERBS = {"pairs": pairs, "contend": contend, "hold": hold, "alternate": alternate, "produce": produce,
         "consume": consume}  # fmt: skip


def main(on: Coordinator) -> None:
    """Do what the command line says."""
    on.open()
    VERBS[sys.argv[1]](on)
    on.close()
