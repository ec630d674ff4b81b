"""A consumer process: `python -m tests.support.recipes.item_consumer DSN NAME`. It gets items until it is killed.

Each item is consumed in one transaction with its row in the ledger. Every third is got in a batch, and every fifth is
given back at first.
"""

from __future__ import annotations

import contextlib
import os
import sys

import psycopg

from pgsched import App, LeaseLost

HOLD_S = 1.0  # the shortest
LEDGER = "CREATE TABLE ledger (id bigint GENERATED ALWAYS AS IDENTITY, item bigint, pid integer, what text)"
NOTE = "INSERT INTO ledger (item, pid, what) VALUES (%s, %s, %s)"


def main(dsn: str, name: str) -> None:
    queue = App(name, dsn=dsn).item_queue("race", hold=HOLD_S)
    pid = os.getpid()
    with psycopg.connect(dsn, autocommit=True) as notes, psycopg.connect(dsn, autocommit=True) as mine:
        while True:
            for item in queue.get_many(3 if pid % 3 == 0 else 1):
                notes.execute(NOTE, [item.id, pid, "got"])
                with contextlib.suppress(LeaseLost):  # it was lost, so the transaction writes nothing
                    if item.id % 5 == 0 and item.attempt == 1:
                        item.give_back(error="at first")
                        continue
                    with mine.transaction():
                        mine.execute(NOTE, [item.id, pid, "consumed"])
                        item.consume(connection=mine)


if __name__ == "__main__":
    main(*sys.argv[1:])
