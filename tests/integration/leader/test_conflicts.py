"""A look that fails because of a conflict costs the leader one round: no term ends, and no worker loses a claim."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.db.queries.leader import expired_leases
from pgsched.leader import election
from pgsched.leader.election import Leader
from pgsched.leader.loop import LeaderLoop
from tests.support.db.clocks import HOUR, a_worker, moved
from tests.support.db.leading import lead
from tests.support.db.setting import Open, add_runs, let_expire, row_of, slots, take
from tests.support.waiting import wait_until

LEASE_S = 1.0


def conflict(*_: object) -> Any:
    raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")


@pytest.mark.few(1)
@pytest.mark.parametrize("table", ["runs", "jobs"])
def test_a_table_locked_for_longer_than_the_leader_waits_ends_no_term(
    table: str, dsn: str, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, said = election.connect, []

    def impatient(dsn: str, **more: Any) -> Any:
        return real(dsn, **{**more, "settings": more["settings"] | {"lock_timeout": "200"}})

    monkeypatch.setattr(election, "connect", impatient)
    monkeypatch.setattr(election.logger, "warning", lambda *told, **_: said.append(told))
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1), "leader")
    thread = threading.Thread(target=leader.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: leader.term, 10, "a term")
        person = connect(autocommit=False)
        person.execute(f"LOCK TABLE pgsched.{table} IN ACCESS EXCLUSIVE MODE".encode())
        wait_until(lambda: len(said) >= 3, 20, "looks in vain")
        person.rollback()
        db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('j', 't')")
        wait_until(lambda: slots(db)[0] == 1, 10, "its slot")
        assert db.execute("SELECT count(*), max(term) FROM pgsched.leader").fetchone() == (1, 1)
    finally:
        leader.stop()
        thread.join(10)


@pytest.fixture
def running(db: psycopg.Connection) -> int:
    """Add a claim of a worker with a short lease; return the run's id."""
    a_worker(db, LEASE_S)
    add_runs(db, 1)
    (claim,) = take(db)
    return claim.id


def let_renew(db: psycopg.Connection, loop: LeaderLoop, run: int) -> None:
    """Check that the next round reaps no claim, and that a round one lease later does."""
    began = time.monotonic()
    loop.run_once()
    assert row_of(db, run)["state"] == "running", "its worker waited as well"
    wait_until(lambda: loop.run_once() >= 0 and row_of(db, run)["state"] == "queued", what="the reaping")
    assert time.monotonic() - began > LEASE_S * 0.8


@pytest.mark.long
def test_failed_looks_count_together_as_one_outage(db: psycopg.Connection, connect: Open, running: int) -> None:
    loop = lead(connect(options="-c lock_timeout=100ms"), reap_every_s=0.05)
    loop.run_once()
    let_expire(db)
    holder, began = connect(autocommit=False), time.monotonic()
    holder.execute("LOCK TABLE pgsched.runs IN ACCESS EXCLUSIVE MODE")
    while time.monotonic() - began < LEASE_S:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            loop.run_once()
    holder.rollback()
    let_renew(db, loop, running)


@pytest.mark.long
def test_an_outage_is_remembered_until_the_lease_lengths_are_known(
    db: psycopg.Connection, connect: Open, running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = lead(connect(), reap_every_s=0.05)
    loop.run_once()
    let_expire(db)
    loop.stall.record_round(LEASE_S)
    with monkeypatch.context() as patched, pytest.raises(psycopg.errors.LockNotAvailable):
        patched.setattr(expired_leases, "lease_bounds", conflict)
        loop.run_once()
    let_renew(db, loop, running)


@pytest.mark.long
def test_a_clock_step_is_remembered_until_the_lease_lengths_are_known(
    db: psycopg.Connection, connect: Open, running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = lead(connect(), reap_every_s=0.05)
    loop.run_once()
    let_expire(db)
    moved(loop, HOUR)
    with monkeypatch.context() as patched, pytest.raises(psycopg.errors.LockNotAvailable):
        patched.setattr(expired_leases, "lease_bounds", conflict)
        loop.run_once()
    let_renew(db, loop, running)
