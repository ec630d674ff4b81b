"""A process that contends for locks: `python -m tests.support.recipes.race.contender DSN SEED TTL KIND...`.

A process with an odd seed has three contenders in an event loop, another one has a single contender. A holder writes
its hold into the ledger, in transactions that assert the grant.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import time
from uuid import UUID, uuid4

import psycopg

from pgsched import App, DatabaseUnreachable, LeaseLost
from pgsched.errors import LockTimeout
from pgsched.recipes.lock import Lock
from tests.support.recipes.race.ledger import AWAY, Ledger

NAMES = {"lock": 3, "semaphore": 2, "election": 2, "rw": 2}  # how many there are of each kind
LIMIT = 3  # of a semaphore
PAUSES_S = (0.0, 0.0, 0.005, 0.03)
TIMEOUTS_S = (None, None, None, 5.0, 0.3, 0.0)
# a lease that is over is not renewed any more
EXPIRED = """
SELECT NOT EXISTS (SELECT FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
    WHERE (p.lock, p.fence) = (%s, %s) AND s.ended_at IS NULL AND s.lease_until > clock_timestamp())"""
WRITE = "INSERT INTO race.writes (lock, fence, mode, hold, what, pid, expired) VALUES (%s, %s, %s, %s, %s, %s, %s)"
# what a program has to expect of locks while servers are restarted and processes frozen
EXPECTED = (LeaseLost, TimeoutError, DatabaseUnreachable, LockTimeout, *AWAY)


class Contender:
    """Contends for one lock after the other. `kinds`: of which it chooses."""

    def __init__(self, app: App, dsn: str, dice: random.Random, ttl_s: float, kinds: list[str]) -> None:
        self._app, self._dsn, self._dice, self._ttl_s, self._kinds = app, dsn, dice, ttl_s, kinds
        self.ledger = Ledger(dsn)

    def choose(self) -> tuple[Lock, str]:
        """Return a lock of some kind, and the mode in which it is held."""
        kind = self._dice.choice(self._kinds)
        name, timeout = f"{kind}-{self._dice.randrange(NAMES[kind])}", self._dice.choice(TIMEOUTS_S)
        if kind == "semaphore":
            return self._app.semaphore(name, LIMIT, ttl=self._ttl_s, timeout=timeout), "counted"
        if kind == "election":
            return self._app.election(name, ttl=self._ttl_s, timeout=timeout), "exclusive"
        if kind == "rw" and self._dice.random() < 0.7:
            return self._app.read_lock(name, ttl=self._ttl_s, timeout=timeout), "shared"
        return self._app.lock(name, ttl=self._ttl_s, timeout=timeout), "exclusive"

    def steps(self) -> list[str]:
        """Return what a holder writes, one after the other."""
        return ["begins", *["goes on"] * self._dice.randrange(3), "ends"]

    def pause_s(self) -> float:
        return self._dice.choice(PAUSES_S)

    def run(self) -> None:
        while not self.ledger.is_over("contending"):
            lock, mode = self.choose()
            try:
                with lock:
                    self._hold(lock, mode, uuid4())
            except EXPECTED as error:
                self._note(error)
                time.sleep(0.05)

    def _hold(self, lock: Lock, mode: str, hold: UUID) -> None:
        for what in self.steps():
            conn = self.ledger.conn
            with conn.transaction():
                expired = conn.execute(EXPIRED, [lock.name, lock.fence]).fetchone()
                lock.assert_held(conn)
                time.sleep(self.pause_s())
                conn.execute(WRITE, [lock.name, lock.fence, mode, hold, what, os.getpid(), *(expired or ())])
                time.sleep(self.pause_s())

    async def run_async(self) -> None:
        while not await asyncio.to_thread(self.ledger.is_over, "contending"):
            lock, mode = self.choose()
            try:
                async with lock:
                    await self._hold_async(lock, mode, uuid4())
            except EXPECTED as error:
                self._note(error)
                await asyncio.sleep(0.05)

    async def _hold_async(self, lock: Lock, mode: str, hold: UUID) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._dsn, autocommit=True, prepare_threshold=None, application_name="race ledger"
        ) as conn:
            for what in self.steps():
                async with conn.transaction():
                    expired = await (await conn.execute(EXPIRED, [lock.name, lock.fence])).fetchone()
                    await lock.assert_held_async(conn)
                    await asyncio.sleep(self.pause_s())
                    await conn.execute(WRITE, [lock.name, lock.fence, mode, hold, what, os.getpid(), *(expired or ())])
                    await asyncio.sleep(self.pause_s())

    def _note(self, error: BaseException) -> None:
        print(f"{time.time():.3f} {type(error).__name__}: {error}".partition("\n")[0], flush=True)


async def contend_together(contenders: list[Contender]) -> None:
    await asyncio.gather(*(one.run_async() for one in contenders))


def main(dsn: str, seed: str, ttl: str, *kinds: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    app = App("contender", dsn=dsn)
    contenders = [Contender(app, dsn, random.Random(f"{seed} {n}"), float(ttl), list(kinds)) for n in range(3)]
    if int(seed) % 2:
        asyncio.run(contend_together(contenders))
    else:
        contenders[0].run()
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
