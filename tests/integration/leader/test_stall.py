"""An outage that the leader's session survives costs no healthy worker its claims."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.term import Term
from pgsched.leader.timing import stall_detector
from tests.support.db.leading import lead
from tests.support.db.setting import Aside, Open, add_runs, let_expire, row_of, take, wait_until_blocked
from tests.support.waiting import wait_until

LEASE_S = 0.8


@pytest.fixture
def running(db: psycopg.Connection) -> int:
    """Add a run that a worker with a short lease has claimed; return its id."""
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
        " VALUES ('w', 'h', 1, '0', 1, '{}', '{}', make_interval(secs => %s))",
        [LEASE_S],
    )
    add_runs(db, 1)
    (claim,) = take(db)
    return claim.id


@contextmanager
def away(db: psycopg.Connection, connect: Open, conn: psycopg.Connection, seconds: float) -> Iterator[None]:
    """Make the leader's next statement wait this many seconds; meanwhile leases end."""
    let_expire(db)
    db.execute("UPDATE pgsched.leader SET seen_at = clock_timestamp() - interval '1 minute'")
    holder = connect(autocommit=False)
    holder.execute("SELECT FROM pgsched.leader FOR UPDATE")
    began = time.monotonic()
    yield
    wait_until_blocked(db, conn)
    wait_until(lambda: time.monotonic() >= began + seconds, what="the end of the outage")
    holder.commit()


def after_an_outage(db: psycopg.Connection, connect: Open, seconds: float = LEASE_S) -> LeaderLoop:
    conn = connect()
    loop = lead(conn, reap_every_s=0.05)
    with away(db, connect, conn, seconds):
        round_ = Aside(loop.run_once)
    round_.result()
    return loop


def test_after_an_outage_workers_get_one_lease_to_renew_their_claims(
    db: psycopg.Connection, connect: Open, running: int
) -> None:
    loop = after_an_outage(db, connect)
    began = time.monotonic()
    loop.run_once()
    assert row_of(db, running)["state"] == "running", "its worker waited as well"
    wait_until(lambda: loop.run_once() >= 0 and row_of(db, running)["state"] != "running", what="the reaping")
    assert time.monotonic() - began > LEASE_S * 0.8, "one lease to be renewed, and no longer than that"


def test_without_the_grace_every_claim_is_reaped(
    db: psycopg.Connection, connect: Open, running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stall_detector, "NOTICED_S", float("inf"))
    after_an_outage(db, connect)
    assert row_of(db, running)["state"] == "queued"


def test_a_short_wait_is_no_outage(db: psycopg.Connection, connect: Open, running: int) -> None:
    after_an_outage(db, connect, seconds=0.01)
    assert row_of(db, running)["state"] == "queued"


def test_claims_still_expire_where_every_round_is_slow(db: psycopg.Connection, connect: Open, running: int) -> None:
    let_expire(db)
    conn = connect()
    loop = lead(conn, reap_every_s=0.05)
    for _ in range(stall_detector.MAX_GRACES):
        assert loop.stall.grace_s(conn, time.monotonic() - 5) > 0
    assert loop.stall.grace_s(conn, time.monotonic() - 5) == 0
    loop.run_once()
    assert row_of(db, running)["state"] == "queued"
    assert loop.stall.grace_s(conn, time.monotonic() - 5) > 0, "the next outage counts anew"


def test_an_outage_in_the_middle_of_a_round_counts_too(db: psycopg.Connection, connect: Open, running: int) -> None:
    loop = lead(connect(), reap_every_s=0.05)
    let_expire(db)
    loop.stall.record_round(5.0)
    loop.run_once()
    assert row_of(db, running)["state"] == "running"


def test_a_fleet_without_workers_needs_no_grace(connect: Open) -> None:
    conn = connect()
    loop = LeaderLoop(Term(conn, 1, LeaderSettings()), reap_from=0.0)
    assert loop.stall.grace_s(conn, time.monotonic() - 5) == 0
