"""A process of a race for items: `python -m tests.support.recipes.race.item_process DSN SEED HOLD WHAT`.

WHAT is `puts` or `gets`. HOLD: how long its items stay held when it has died, in seconds. It consumes some items in one
transaction with a row in the ledger, some without, and gives some back.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import time
from collections.abc import Callable

from pgsched import App
from pgsched.recipes.items.item import Item
from pgsched.recipes.items.item_queue import ItemQueue
from tests.support.recipes.race.ledger import EXPECTED, Ledger, committing, note

PAUSES_S = (0.0, 0.0, 0.005, 0.03)
PUT = "INSERT INTO race.puts (key, sure) VALUES (%s, %s)"
CONSUMED = "INSERT INTO race.consumed (item, key, pid) VALUES (%s, %s, %s)"


class Changed(Exception):
    """The consumer has changed its mind."""


class Process:
    """Puts items, or gets them."""

    def __init__(self, queue: ItemQueue, ledger: Ledger, dice: random.Random) -> None:
        self._queue, self._ledger, self._dice = queue, ledger, dice

    def repeat(self, work: Callable[[], None], until: str) -> None:
        """Work until this part of the race is over."""
        while not self._ledger.is_over(until):
            try:
                work()
            except EXPECTED as error:
                note(error)
                time.sleep(0.05)

    def put(self) -> None:
        """Put one item or several. After an error it is not known whether they are there."""
        keys = [f"{os.getpid()}-{time.monotonic_ns()}-{n}" for n in range(self._dice.choice([1, 1, 4]))]
        priority, delay = self._dice.choice([50, 100]), self._dice.choice([0, 0, 0, 0.3])
        if self._dice.random() < 0.5:
            conn = self._ledger.conn
            with committing(conn):
                for key in keys:
                    conn.execute(PUT, [key, True])
                self._queue.put_many(keys, priority=priority, delay=delay, connection=conn)
        else:
            for key in keys:
                self._ledger.conn.execute(PUT, [key, False])
            self._queue.put_many(keys, priority=priority, delay=delay)
            self._ledger.conn.execute("UPDATE race.puts SET sure = true WHERE key = ANY (%s)", [keys])
        time.sleep(0.02 + self._pause_s())

    def get(self) -> None:
        """Get one item or several, and consume them, or give them back."""
        for item in self._queue.get_many(self._dice.choice([1, 1, 3]), 1.0):
            try:
                with item:
                    self._work(item)
            except (Changed, *EXPECTED) as error:
                note(error)

    def _work(self, item: Item) -> None:
        how = self._dice.choice(["by the block", "in a transaction", "in a transaction", "plainly", "back", "fails"])
        time.sleep(self._pause_s())
        if how == "in a transaction":
            conn = self._ledger.conn
            with committing(conn):
                conn.execute(CONSUMED, [item.id, item.value, os.getpid()])
                item.consume(connection=conn)
                time.sleep(self._pause_s())
        elif how == "plainly":
            item.consume()
        elif how == "back":
            item.give_back(delay=self._dice.choice([0, 0.2]))
        elif how == "fails":
            raise Changed(f"item {item.id}")

    def _pause_s(self) -> float:
        return self._dice.choice(PAUSES_S)


def main(dsn: str, seed: str, hold: str, what: str) -> None:
    faulthandler.register(signal.SIGUSR1)
    app = App("items", dsn=dsn)
    process = Process(app.item_queue("race", hold=float(hold)), Ledger(dsn), random.Random(seed))
    process.repeat(process.put if what == "puts" else process.get, "putting" if what == "puts" else "getting")
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
