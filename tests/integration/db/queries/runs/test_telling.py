"""Waking sleepers: transactions that overlap are announced once, and none of them can silence a queue."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import psycopg
import pytest

from tests.support.db import setting
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection]
TOLD = "SELECT setval('pgsched.told_at', (date_part('epoch', clock_timestamp()) * 1000)::bigint + %s)"
ENQUEUE = "SELECT pgsched.enqueue('t', queue => %s)"


@pytest.fixture
def heard(db: psycopg.Connection, connect: Open) -> Callable[[], list[str]]:
    """The queues of which a sleeping worker was told since the last call."""
    db.execute(setting.ASLEEP, [600_000])
    listener = connect()
    listener.execute("LISTEN pgsched_runs")
    return partial(setting.heard, db, listener)


def test_of_transactions_that_overlap_one_is_announced(
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
    assert heard() == ["a"]
    db.execute(ENQUEUE, ["a"])
    assert heard() == ["a"], "nobody overlaps any more"


def test_a_long_transaction_does_not_silence_its_queue(
    db: psycopg.Connection, connect: Open, heard: Callable[[], list[str]]
) -> None:
    connect(autocommit=False).execute(ENQUEUE, ["a"])
    for offset in (-21, 5000):  # long ago; a clock that ran ahead
        db.execute(TOLD, [offset])
        db.execute(ENQUEUE, ["a"])
        assert heard() == ["a"]


def test_another_queue_is_not_silenced(db: psycopg.Connection, connect: Open, heard: Callable[[], list[str]]) -> None:
    connect(autocommit=False).execute(ENQUEUE, ["a"])
    db.execute(TOLD, [0])
    db.execute(ENQUEUE, ["b"])
    assert heard() == ["b"]
