"""A process of a race about watches: `python -m tests.support.recipes.race.watch_process DSN SEED WHAT [PREFIX NAME]`.

WHAT is `writes`, `watches` or `watches_async`. A watcher writes what it sees into the ledger under its NAME. When it is
started again it goes on after the last change that is there.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import time
from typing import Any

from psycopg.types.json import Jsonb

from pgsched import App
from pgsched.recipes.watch import Change
from tests.support.recipes.race.ledger import AWAY, EXPECTED, Ledger, note

ROOT = "race"
TTL_S = 1.0
LAST = "SELECT coalesce(max(version), 0) FROM race.seen WHERE watcher = %s"
# after a cut it is not known whether it was committed
SEEN = "INSERT INTO race.seen (watcher, version, key, kind, value) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"


def write(app: App, ledger: Ledger, dice: random.Random) -> None:
    """Change keys, some of them bound to the session of this process, until the race is over."""
    while not ledger.is_over("writing"):
        key = f"{ROOT}/{dice.choice('ab')}/{dice.randrange(5)}"
        try:
            match dice.randrange(6):
                case 0:
                    app.kv.delete(key)
                case 1:
                    app.counter(f"{ROOT}/a/count").add(1)
                case 2:
                    with app.party(f"{ROOT}/b/party", data=os.getpid(), ttl=TTL_S):
                        time.sleep(dice.choice([0.0, 0.2]))
                case _:
                    app.kv.put(key, dice.randrange(1000))
        except EXPECTED as error:
            note(error)
        time.sleep(0.02)


class Watcher:
    """Watches a prefix, and writes what it sees into the ledger."""

    def __init__(self, app: App, ledger: Ledger, dice: random.Random, prefix: str, name: str) -> None:
        self._app, self._ledger, self._dice, self._prefix, self._name = app, ledger, dice, prefix, name

    def run(self) -> None:
        """Watch until the race is over; begin anew now and then, after what was seen last."""
        while not self._ledger.is_over("watching"):
            try:
                with self._app.watch(self._prefix, since=self._last(), timeout=2) as watch:
                    for _, change in zip(range(self._dice.randrange(1, 200)), watch, strict=False):
                        self._see(change)
            except EXPECTED as error:
                note(error)
                time.sleep(0.05)

    async def run_async(self) -> None:
        while not await asyncio.to_thread(self._ledger.is_over, "watching"):
            try:
                async with self._app.watch(self._prefix, since=self._last(), timeout=2) as watch:
                    left = self._dice.randrange(1, 200)
                    async for change in watch:
                        self._see(change)
                        if (left := left - 1) == 0:
                            break
            except EXPECTED as error:
                note(error)
                await asyncio.sleep(0.05)

    def _last(self) -> int:
        row = self._ledger.conn.execute(LAST, [self._name]).fetchone()
        assert row is not None
        return int(row[0])

    def _see(self, change: Change) -> None:
        """Write it, again where the connection was cut."""
        value: Any = None if change.value is None else Jsonb(change.value)
        while True:
            try:
                self._ledger.conn.execute(SEEN, [self._name, change.version, change.key, change.kind, value])
                return
            except AWAY as error:
                note(error)
                time.sleep(0.05)


def main(dsn: str, seed: str, what: str, prefix: str = "", name: str = "") -> None:
    faulthandler.register(signal.SIGUSR1)
    app, ledger, dice = App("watches", dsn=dsn), Ledger(dsn), random.Random(seed)
    if what == "writes":
        write(app, ledger, dice)
    else:
        watcher = Watcher(app, ledger, dice, prefix, name)
        asyncio.run(watcher.run_async()) if what == "watches_async" else watcher.run()
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
