"""The verbs of the adapters.

Invariant: an adapter only says how its library does something. When and how often this happens is decided here, alike
for all.

- `setup`: make the schema
- `bulk`: enqueue BENCH_N jobs by the library's bulk call
- `single`: enqueue BENCH_N jobs one by one on one connection
- `trickle`: enqueue BENCH_RATE jobs per second
- `work`: run a worker until it is killed
- `feed`: enqueue BENCH_CHUNK jobs in bulk each time it is asked to
"""

from __future__ import annotations

import asyncio
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from bench.peers.record import Pulse, from_environment, number, say

WARM_UP = 20


class Adapter(ABC):
    """One contestant. `i` in `enqueue` is the number that the handler passes to `record`."""

    run: Callable[[Coroutine[Any, Any, None]], None] = staticmethod(asyncio.run)

    @abstractmethod
    async def setup(self) -> None:
        """Make the schema in an empty database."""

    @abstractmethod
    async def open(self) -> None:
        """Connect for enqueueing."""

    @abstractmethod
    async def enqueue(self, i: int) -> None:
        """Enqueue one job; returns once it is committed."""

    @abstractmethod
    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        """Enqueue these by the library's bulk call."""

    @abstractmethod
    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        """Run a worker until the process is killed. Handlers call `record(i)`, then sleep if `sleep_s` is not 0."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""


async def bulk(adapter: Adapter) -> None:
    """Enqueue BENCH_N jobs in one bulk call."""
    n, first = number("N", 100_000), number("FIRST", 0)
    await adapter.open()
    began = time.monotonic_ns()
    await adapter.enqueue_many(range(first, first + n))
    say(n=n, seconds=(time.monotonic_ns() - began) / 1e9)
    await adapter.close()


async def single(adapter: Adapter) -> None:
    """Enqueue BENCH_N jobs one by one, after WARM_UP jobs that prepare the connection and its statements."""
    n, first = number("N", 1000), number("FIRST", 0)
    await adapter.open()
    for i in range(WARM_UP):
        await adapter.enqueue(first + n + i)
    began = time.monotonic_ns()
    for i in range(n):
        await adapter.enqueue(first + i)
    say(n=n, seconds=(time.monotonic_ns() - began) / 1e9)
    await adapter.close()


async def trickle(adapter: Adapter) -> None:
    """Enqueue BENCH_RATE jobs per second, BENCH_N in all; report when each call began and committed."""
    n = number("N", 2000)
    await adapter.open()
    for i in range(WARM_UP):
        await adapter.enqueue(n + i)
        await asyncio.sleep(0.02)
    pulse = Pulse(number("RATE", 100), n)
    for i in range(n):
        await asyncio.sleep(pulse.wait_s(i))
        pulse.sending()
        await adapter.enqueue(i)
        pulse.committed()
    pulse.say()
    await adapter.close()


async def feed(adapter: Adapter) -> None:
    """Make a bulk call of BENCH_CHUNK jobs for each line on stdin, so that the driver controls the backlog."""
    await adapter.open()
    chunk = number("CHUNK", 1000)
    loop = asyncio.get_running_loop()
    fed = 0
    say(ready=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        await adapter.enqueue_many(range(fed, fed + chunk))
        fed += chunk
        say(fed=fed)
    await adapter.close()


async def work(adapter: Adapter) -> None:
    """Run a worker until it is killed."""
    await adapter.work(from_environment().record, number("SLEEP_MS", 0) / 1000)


async def setup(adapter: Adapter) -> None:
    """Make the schema."""
    await adapter.setup()
    say(ready=True)


VERBS = {"setup": setup, "bulk": bulk, "single": single, "trickle": trickle, "feed": feed, "work": work}


def main(adapter: Adapter) -> None:
    """Do what the command line says."""
    adapter.run(VERBS[sys.argv[1]](adapter))
