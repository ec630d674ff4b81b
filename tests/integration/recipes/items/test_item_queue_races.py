"""No item is lost and none is consumed twice, whatever becomes of the consumers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain

import psycopg
import pytest

from pgsched import App
from pgsched.chaos.site.proxy import Proxy
from tests.support.logins import one
from tests.support.paths import ROOT
from tests.support.recipes.item_consumer import LEDGER
from tests.support.sessions import BLOCKED
from tests.support.waiting import wait_until

CONSUMED = "SELECT count(*) FROM ledger WHERE what = 'consumed'"
ITEMS = 400


class Consumers:
    """Consumer processes, which the test starts and kills."""

    def __init__(self, dsn: str, db: psycopg.Connection, opened: ExitStack) -> None:
        self._dsn, self._db, self._opened = dsn, db, opened
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.support.recipes.item_consumer", self._dsn, f"c{len(self.processes)}"]
        process = subprocess.Popen(command, cwd=ROOT)
        self._opened.callback(process.wait)
        self._opened.callback(process.kill)
        self.processes.append(process)
        return process

    def at_work(self, process: subprocess.Popen[bytes]) -> None:
        got = "SELECT count(*) FROM ledger WHERE pid = %s"
        wait_until(lambda: one(self._db, got, process.pid) or process.poll() is not None, 60, "its first item")
        assert process.poll() is None


@pytest.fixture
def consumers(dsn: str, db: psycopg.Connection) -> Iterator[Consumers]:
    db.execute(LEDGER.encode())
    with ExitStack() as opened:
        yield Consumers(dsn, db, opened)


@pytest.mark.long
def test_killed_and_frozen_consumers_lose_no_item_and_consume_none_twice(
    app: App, db: psycopg.Connection, consumers: Consumers
) -> None:
    queue = app.item_queue("race")
    ids = queue.put_many(range(ITEMS // 4))
    started = [consumers.start() for _ in range(3)]
    with ThreadPoolExecutor(3) as producers:
        puts = [producers.submit(lambda: [queue.put(n) for n in range(ITEMS // 4)]) for _ in range(3)]
        for process in started:
            consumers.at_work(process)
        frozen, killed, _ = started
        os.kill(frozen.pid, signal.SIGSTOP)
        killed.kill()
        consumers.start()
        ids += [item for put in puts for item in put.result(60)]
    # it may have been frozen in its transaction: then nobody else gets that item until the transaction has ended
    wait_until(lambda: one(db, CONSUMED) >= ITEMS - 1, 90, "the items, also those of the frozen process")
    lives = "SELECT count(*) FROM pgsched.sessions WHERE ended_at IS NULL AND name LIKE %s"
    wait_until(lambda: one(db, lives, f"%:{frozen.pid}") == 0, 30, "the end of its session")
    os.kill(frozen.pid, signal.SIGCONT)
    last = queue.put("last")
    ids.append(last)
    wait_until(lambda: queue.count() == 0, 60, "the end")
    consumed = Counter(item for (item,) in db.execute("SELECT item FROM ledger WHERE what = 'consumed'").fetchall())
    assert {item: count for item, count in consumed.items() if count > 1} == {}
    assert consumed.keys() == set(ids)


def test_one_consumer_gets_the_items_of_several_producers_in_their_order(app: App) -> None:
    """Of each producer, in the order in which it put them; of all, in the order of their ends and beginnings."""
    queue = app.item_queue("race", timeout=0)
    with ThreadPoolExecutor(4) as producers:
        list(producers.map(lambda who: [queue.put([who, n]) for n in range(50)], range(4)))
    got = [item.value for item in queue]
    assert len(got) == 200
    for who in range(4):
        assert [n for one_who, n in got if one_who == who] == list(range(50))


def test_two_consumers_at_once_get_different_items(app: App, dsn: str) -> None:
    queue = app.item_queue("race")
    queue.put_many(range(300))
    apps = [App(f"c{n}", dsn=dsn) for n in range(4)]

    def drain(which: App) -> list[int]:
        return [item.value for item in which.item_queue("race", timeout=0)]

    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(drain, apps))
    for which in apps:
        which.close()
    assert sorted(chain.from_iterable(got)) == list(range(300))
    assert all(part == sorted(part) for part in got)


# whoever gets the first item waits until the test lets go, and commits then
HOLD_UP = """
CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(7) WHERE NEW.value = '1' AND NEW.session IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER hold_up AFTER UPDATE ON pgsched.items FOR EACH ROW EXECUTE FUNCTION hold_up();
"""
HELD_UP = f"{BLOCKED} AND wait_event = 'advisory'"


def test_what_a_call_gets_after_its_connection_was_cut_is_given_back(
    app: App, dsn: str, db: psycopg.Connection
) -> None:
    """The call is repeated and gets the second item. Then the server commits the first call."""
    db.execute(HOLD_UP.encode())
    app.item_queue("race").put_many([0, 1, 2])
    with Proxy(dsn) as proxy, ThreadPoolExecutor(1) as thread:
        far = App("far", dsn=proxy.dsn)
        queue = far.item_queue("race", hold=3600)
        queue.get(0).consume()
        one(db, "SELECT pg_advisory_lock(7)::text")
        getting = thread.submit(queue.get, 60)
        wait_until(lambda: one(db, HELD_UP) == 1, 30, "the call to be held up")
        proxy.cut()
        second = getting.result(30)
        assert second.value == 2
        assert one(db, "SELECT pg_advisory_unlock(7)")
        with queue.get(60) as first:
            assert (first.value, first.attempt) == (1, 1)
        second.consume()
        assert queue.count() == 0
        far.close()
