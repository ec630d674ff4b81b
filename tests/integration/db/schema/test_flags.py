"""Flags that are kept in sequences are rebuilt by each new leader and each migration.

A sequence is not part of a transaction. Each flag follows from rows or from the clock, so that it can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.db.queries.leader import leadership
from pgsched.db.schema import migrate
from pgsched.leader.election import Leader
from tests.support.db.setting import Aside
from tests.support.logins import Logins, alone
from tests.support.schema.psql import apply_script
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection]
BITS = "SELECT coalesce(bit_or(pgsched.queue_bit(name)), 0) FROM pgsched.queues"
GATED = "SELECT pg_sequence_last_value('pgsched.gated_queues')"
ASLEEP_S = ("SELECT pg_sequence_last_value('pgsched.asleep_until') / 1000.0"
            " - extract(epoch FROM clock_timestamp())")  # fmt: skip
NONSENSE = (0, 1, 2**61 - 1, 2**63 - 1)


def one(db: psycopg.Connection, query: str) -> float:
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def lead(dsn: str, db: psycopg.Connection) -> None:
    """Start a leader, wait until it leads, and stop it."""
    leader = Leader(dsn, LeaderSettings(), "test")
    aside = Aside(leader.run)
    wait_until(lambda: db.execute("SELECT FROM pgsched.leader").fetchone() is not None, 20, "a leader")
    leader.stop()
    aside.result()


def move(dsn: str, _: psycopg.Connection) -> None:
    migrate.upgrade(dsn)


def script(dsn: str, _: psycopg.Connection) -> None:
    from pgsched.db.schema.script import upgrade_sql

    assert apply_script(dsn, upgrade_sql()).returncode == 0


@pytest.mark.parametrize("rebuild", [lead, move, script])
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_the_bits_of_queues_are_rebuilt(
    db: psycopg.Connection, dsn: str, nonsense: int, rebuild: Callable[[str, psycopg.Connection], None]
) -> None:
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('a', 1), ('b', 1), ('c', 1)")
    right = one(db, BITS)
    db.execute("SELECT setval('pgsched.gated_queues', %s)", [nonsense])
    rebuild(dsn, db)
    assert one(db, GATED) == right
    db.execute("SELECT pgsched.enqueue('t', queue => 'b')")
    assert db.execute("SELECT state FROM pgsched.runs").fetchall() == [("waiting",)], "limits hold"


@pytest.mark.parametrize("rebuild", [lead, move, script])
def test_an_impossible_end_of_the_workers_sleep_is_set_back(
    db: psycopg.Connection, dsn: str, rebuild: Callable[[str, psycopg.Connection], None]
) -> None:
    db.execute("SELECT setval('pgsched.asleep_until', 8999999999999)")
    rebuild(dsn, db)
    assert 0 < one(db, ASLEEP_S) <= 10, "somebody may be asleep, for as long as a worker says that it is"


def test_an_end_of_sleep_that_a_worker_asked_for_stays(db: psycopg.Connection, dsn: str) -> None:
    db.execute("SELECT pgsched.workers_asleep(3600)")
    lead(dsn, db)
    assert 3500 < one(db, ASLEEP_S) <= 3600


def test_an_open_change_of_queues_delays_no_leader_and_loses_no_bit(
    db: psycopg.Connection, connect: Open, dsn: str
) -> None:
    """While another transaction changes queues, a new leader leaves their bits as they are.

    It tries again with its next pruning.
    """
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('a', 1)")
    other = connect(autocommit=False)
    other.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('b', 1)")
    with db.transaction():
        leadership.elect(db, "test")
    other.commit()
    assert one(db, GATED) == one(db, BITS)


def test_a_worker_s_login_may_ask_for_a_migration_that_has_nothing_to_do(logins: Logins) -> None:
    alone(lambda: migrate.upgrade(logins.dsn("worker")))
