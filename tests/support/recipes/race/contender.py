"""A process that contends for locks: `python -m tests.support.recipes.race.contender DSN SEED TTL HOW KIND...`.

HOW is `thread`, `tasks` (three contenders in an event loop), or `sql` (it calls the functions of the schema, with a
session for each lock). A holder writes its hold into the ledger, in transactions that assert the grant.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import random
import signal
import sys
import time
from uuid import UUID, uuid4

import psycopg

from pgsched import App
from pgsched.recipes.lock import Lock
from tests.support.recipes.race.ledger import AWAY, EXPECTED, Ledger, committing, committing_async, note, own_name

NAMES = {"lock": 3, "semaphore": 2, "election": 2, "rw": 2}  # how many there are of each kind
LIMIT = 3  # of a semaphore
PAUSES_S = (0.0, 0.0, 0.005, 0.03)
TIMEOUTS_S = (None, None, None, 5.0, 0.3, 0.0)
# a lease that is over is not renewed any more; a renewal that is not committed yet has locked the row
EXPIRED = """
SELECT s.ended_at IS NOT NULL OR s.lease_until <= clock_timestamp()
FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session
WHERE (p.lock, p.fence) = (%s, %s) FOR SHARE OF s SKIP LOCKED"""
WRITE = "INSERT INTO race.writes (lock, fence, mode, hold, what, pid, expired) VALUES (%s, %s, %s, %s, %s, %s, %s)"
ACQUIRE = """
SELECT fence FROM pgsched.lock_acquire(%(name)s, %(token)s, %(ttl)s * interval '1 s', interval '5 s', %(mode)s,
    %(capacity)s)"""
RENEW, RELEASE = "SELECT pgsched.lock_renew(%s, %s)", "SELECT pgsched.lock_release(%s, %s)"
SQL_WAIT_S = 5.0


class Contender:
    """Contends for one lock after the other. `kinds`: of which it chooses."""

    def __init__(self, app: App, dsn: str, dice: random.Random, ttl_s: float, kinds: list[str]) -> None:
        self._app, self._dsn, self._dice, self._ttl_s, self._kinds = app, dsn, dice, ttl_s, kinds
        self.ledger = Ledger(dsn)

    def choose(self) -> tuple[str, str]:
        """Return the name of a lock, which begins with its kind, and the mode in which to hold it."""
        kind = self._dice.choice(self._kinds)
        mode = "counted" if kind == "semaphore" else "exclusive"
        if kind == "rw" and self._dice.random() < 0.7:
            mode = "shared"
        return f"{kind}-{self._dice.randrange(NAMES[kind])}", mode

    def lock(self, name: str, mode: str) -> Lock:
        """Return the App's lock of this name."""
        timeout = self._dice.choice(TIMEOUTS_S)
        if mode == "counted":
            return self._app.semaphore(name, LIMIT, ttl=self._ttl_s, timeout=timeout)
        if name.startswith("election"):
            return self._app.election(name, ttl=self._ttl_s, timeout=timeout)
        make = self._app.read_lock if mode == "shared" else self._app.lock
        return make(name, ttl=self._ttl_s, timeout=timeout)

    def steps(self) -> list[str]:
        """Return what a holder writes, one after the other."""
        return ["begins", *["goes on"] * self._dice.randrange(3), "ends"]

    def pause_s(self) -> float:
        return self._dice.choice(PAUSES_S)

    def run(self) -> None:
        while not self.ledger.is_over("contending"):
            name, mode = self.choose()
            try:
                with self.lock(name, mode) as lock:
                    self._hold(lock, mode, uuid4())
            except EXPECTED as error:
                note(error)
                time.sleep(0.05)

    def _hold(self, lock: Lock, mode: str, hold: UUID) -> None:
        for what in self.steps():
            conn = self.ledger.conn
            expired = conn.execute(EXPIRED, [lock.name, lock.fence]).fetchone() or (None,)
            with committing(conn):
                lock.assert_held(conn)
                time.sleep(self.pause_s())
                conn.execute(WRITE, [lock.name, lock.fence, mode, hold, what, os.getpid(), *expired])
                time.sleep(self.pause_s())

    async def run_async(self) -> None:
        while not await asyncio.to_thread(self.ledger.is_over, "contending"):
            name, mode = self.choose()
            try:
                async with self.lock(name, mode) as lock:
                    await self._hold_async(lock, mode, uuid4())
            except EXPECTED as error:
                note(error)
                await asyncio.sleep(0.05)

    async def _hold_async(self, lock: Lock, mode: str, hold: UUID) -> None:
        async with await psycopg.AsyncConnection.connect(
            self._dsn, autocommit=True, prepare_threshold=None, application_name=own_name()
        ) as conn:
            for what in self.steps():
                expired = await (await conn.execute(EXPIRED, [lock.name, lock.fence])).fetchone() or (None,)
                async with committing_async(conn):
                    await lock.assert_held_async(conn)
                    await asyncio.sleep(self.pause_s())
                    await conn.execute(WRITE, [lock.name, lock.fence, mode, hold, what, os.getpid(), *expired])
                    await asyncio.sleep(self.pause_s())

    def run_sql(self) -> None:
        while not self.ledger.is_over("contending"):
            name, mode = self.choose()
            token = uuid4()
            try:
                self._hold_by_sql(name, mode, token)
            except psycopg.Error as error:
                if not isinstance(error, AWAY) and error.sqlstate != "PS410":
                    raise
                note(error)
            with contextlib.suppress(*AWAY):
                self.ledger.conn.execute(RELEASE, [name, token])

    def _hold_by_sql(self, name: str, mode: str, token: UUID) -> None:
        wanted, capacity = ("exclusive", LIMIT) if mode == "counted" else (mode, None)
        params = {"name": name, "token": token, "ttl": self._ttl_s, "mode": wanted, "capacity": capacity}
        until = time.monotonic() + SQL_WAIT_S
        conn = self.ledger.conn
        while (row := conn.execute(ACQUIRE, params).fetchone() or (None,)) == (None,):
            if time.monotonic() > until:
                return
            time.sleep(0.05)
        for what in self.steps():
            expired = conn.execute(EXPIRED, [name, *row]).fetchone() or (None,)
            with committing(conn):
                conn.execute("SELECT pgsched.assert_lock(%s, %s)", [name, *row])
                time.sleep(self.pause_s())
                conn.execute(WRITE, [name, *row, mode, token, what, os.getpid(), *expired])
                time.sleep(self.pause_s())
            conn.execute(RENEW, [name, token])


async def contend_together(contenders: list[Contender]) -> None:
    await asyncio.gather(*(one.run_async() for one in contenders))


def main(dsn: str, seed: str, ttl: str, how: str, *kinds: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    app = App("contender", dsn=dsn)
    contenders = [Contender(app, dsn, random.Random(f"{seed} {n}"), float(ttl), list(kinds)) for n in range(3)]
    if how == "tasks":
        asyncio.run(contend_together(contenders))
    else:
        (contenders[0].run_sql if how == "sql" else contenders[0].run)()
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
