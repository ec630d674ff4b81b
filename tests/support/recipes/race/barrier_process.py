"""A process of a race about a double barrier: `python -m tests.support.recipes.race.barrier_process DSN SEED TTL HOW`.

HOW is `thread` or `tasks` (two members in an event loop). A member writes into the ledger when it has entered, and when
it has left and knows that the round is over.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import time

from pgsched import App
from pgsched.recipes.double_barrier import DoubleBarrier
from tests.support.recipes.race.ledger import EXPECTED, Ledger, note

SIZE = 3
PAUSES_S = (0.0, 0.0, 0.01, 0.05)
TIMEOUTS_S = (15.0, 15.0, 5.0, 0.3)  # at the end of the race others do not come any more
PASSED = "INSERT INTO race.passed (member, what) VALUES (%s, %s)"


class Member:
    """Goes through one round after the other, each time as another member."""

    def __init__(self, app: App, ledger: Ledger, dice: random.Random, ttl_s: float) -> None:
        self._app, self._dice, self._ttl_s = app, dice, ttl_s
        self.ledger = ledger

    def barrier(self, name: str) -> DoubleBarrier:
        timeout = self._dice.choice(TIMEOUTS_S)
        return self._app.double_barrier("race", SIZE, ttl=self._ttl_s, timeout=timeout, note=name)

    def name(self) -> str:
        return f"{os.getpid()}-{time.monotonic_ns()}-{self._dice.randrange(1_000_000)}"

    def pause_s(self) -> float:
        return self._dice.choice(PAUSES_S)

    def run(self) -> None:
        while not self.ledger.is_over("meeting"):
            name = self.name()
            try:
                with self.barrier(name):
                    self.ledger.conn.execute(PASSED, [name, "entered"])
                    time.sleep(self.pause_s())
                self.ledger.conn.execute(PASSED, [name, "left"])
            except EXPECTED as error:
                note(error)
                time.sleep(0.05)

    async def run_async(self) -> None:
        while not await asyncio.to_thread(self.ledger.is_over, "meeting"):
            name = self.name()
            try:
                async with self.barrier(name):
                    await asyncio.to_thread(self.ledger.conn.execute, PASSED, [name, "entered"])
                    await asyncio.sleep(self.pause_s())
                await asyncio.to_thread(self.ledger.conn.execute, PASSED, [name, "left"])
            except EXPECTED as error:
                note(error)
                await asyncio.sleep(0.05)


async def meet(members: list[Member]) -> None:
    await asyncio.gather(*(one.run_async() for one in members))


def main(dsn: str, seed: str, ttl: str, how: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    app = App("barriers", dsn=dsn)
    members = [Member(app, Ledger(dsn), random.Random(f"{seed} {n}"), float(ttl)) for n in range(2)]
    if how == "tasks":
        asyncio.run(meet(members))
    else:
        members[0].run()
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
