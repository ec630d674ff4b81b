"""Notifications to sleeping workers and to a sleeping leader.

Transactions that overlap send one notification, and none of them can silence a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import psycopg
import pytest

from pgsched.worker.claiming.known_queues import mark
from tests.support.db import setting
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection]
TOLD = """SELECT setval('pgsched.told_at', (((date_part('epoch', clock_timestamp()) * 1000)::bigint + %s) << 20)
    | (hashtextextended('pgsched_runs ' || pgsched.queue_mark('a'), 7236838) & 1048575))"""
ENQUEUE = "SELECT pgsched.enqueue('t', queue => %s)"


@pytest.fixture
def heard(db: psycopg.Connection, connect: Open) -> Callable[[], list[str]]:
    """Return a function that returns the queue marks sent to a sleeping worker since its last call."""
    db.execute(setting.ASLEEP, [600_000])
    listener = connect()
    listener.execute("LISTEN pgsched_runs")
    return partial(setting.heard, db, listener)


def test_overlapping_transactions_send_one_notification(
    db: psycopg.Connection, connect: Open, heard: Callable[[], list[str]]
) -> None:
    first = connect(autocommit=False)
    first.execute(ENQUEUE, ["a"])

    def unheard() -> bool:
        db.execute(TOLD, [0])
        db.execute(ENQUEUE, ["a"])  # within 20 ms, unless the machine is busy
        return heard() == []

    wait_until(unheard)
    first.commit()
    assert heard() == [mark("a")]
    db.execute(ENQUEUE, ["a"])
    assert heard() == [mark("a")], "nobody overlaps any more"


def test_a_long_transaction_does_not_silence_its_queue(
    db: psycopg.Connection, connect: Open, heard: Callable[[], list[str]]
) -> None:
    connect(autocommit=False).execute(ENQUEUE, ["a"])
    for offset in (-21, 5000):  # long ago, and by a clock that ran ahead
        db.execute(TOLD, [offset])
        db.execute(ENQUEUE, ["a"])
        assert heard() == [mark("a")]


@pytest.mark.parametrize("held", [False, True])
def test_another_queue_is_not_silenced(
    held: bool, db: psycopg.Connection, connect: Open, heard: Callable[[], list[str]]
) -> None:
    """It is not silenced either while another session holds its lock, which any session may do."""
    connect(autocommit=False).execute(ENQUEUE, ["a"])
    if held:
        lock = "SELECT pg_advisory_lock(hashtextextended('pgsched_runs ' || pgsched.queue_mark('b'), 7236838))"
        connect().execute(lock)
    db.execute(TOLD, [0])
    db.execute(ENQUEUE, ["b"])
    assert heard() == [mark("b")]


# ---- the leader


@pytest.fixture
def told(db: psycopg.Connection, connect: Open) -> Callable[[], int]:
    """Return a function that counts the leader's notifications since its last call."""
    listener = connect()
    listener.execute("LISTEN pgsched_leader")

    def count() -> int:
        db.execute("NOTIFY pgsched_leader, 'end'")
        for before, notify in enumerate(listener.notifies(timeout=10)):
            if notify.payload == "end":
                return before
        raise AssertionError("a notification got lost")

    return count


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("delay => '1 hour'", 0),
        ("delay => '2 s'", 1),
        ("concurrency_key => 'k'", 1),
        ("after => ARRAY[pgsched.enqueue('t')]", 1),
    ],
)
def test_a_sleeping_leader_is_notified_of_runs_due_before_its_next_look(
    how: str, wanted: int, db: psycopg.Connection, told: Callable[[], int]
) -> None:
    enqueue = f"SELECT pgsched.enqueue('t', {how})".encode()
    db.execute("SELECT pgsched.leader_sleeps(10)")
    db.execute(enqueue)
    assert told() == wanted
    db.execute("SELECT pgsched.leader_sleeps(0), pg_sleep(0.001)")  # its clock counts milliseconds
    db.execute(enqueue)
    assert told() == 0, "it is at work, or there is none"
    db.execute("SELECT setval('pgsched.leader_looks_at', 8999999999999)")
    db.execute(enqueue)
    assert told() == 1, "nobody looks so late"
    db.execute("SELECT pgsched.rebuild_flags()")
    ahead = "SELECT pg_sequence_last_value('pgsched.leader_looks_at') / 1000 - extract(epoch FROM clock_timestamp())"
    assert (db.execute(ahead).fetchone() or (99,))[0] < 15


def test_runs_of_one_or_of_overlapping_transactions_notify_the_leader_once(
    db: psycopg.Connection, connect: Open, told: Callable[[], int]
) -> None:
    keyed = "SELECT pgsched.enqueue('t', concurrency_key => 'k')"
    db.execute("SELECT pgsched.leader_sleeps(60)")
    db.execute(f"{keyed} FROM generate_series(1, 100)".encode())
    assert told() == 1
    connect(autocommit=False).execute(keyed)

    def unheard() -> bool:
        with db.transaction():  # within 20 ms, unless the machine is busy
            db.execute(keyed)
        before = told()
        db.execute(keyed)
        return before == 1 and told() == 0

    wait_until(unheard)


def test_notifying_functions_are_inlined_into_the_calling_statement(db: psycopg.Connection) -> None:
    """Each call of a function that is not inlined costs ten times as much."""
    found = db.execute("EXPLAIN (VERBOSE) SELECT pgsched.notify('c', pgsched.queue_mark(q)), pgsched.tell_workers(q)"
                       " FROM (VALUES ('a'), ('b')) v(q)").fetchall()  # fmt: skip
    text = "\n".join(line for (line,) in found)
    assert [name for name in ("notify", "queue_mark", "tell_workers") if f"pgsched.{name}(" in text] == []
