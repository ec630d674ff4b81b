"""When the database's clock is moved, no healthy worker loses a claim, and no claim stays valid for hours."""

from __future__ import annotations

import time

import psycopg
import pytest

from pgsched.db.queries.leader import expired_leases, leadership
from tests.support.db.clocks import HOUR, a_worker, moved
from tests.support.db.leading import lead
from tests.support.db.setting import add_runs, row_of, take


def test_a_clock_moved_ahead_costs_no_worker_its_claim(db: psycopg.Connection) -> None:
    a_worker(db)
    add_runs(db, 1)
    (claim,) = take(db)
    loop = lead(db)
    loop.run_once()
    loop.claims.period.set_due_at(0)
    db.execute(
        "UPDATE pgsched.runs SET lease_until = lease_until - interval '2 hours'"
    )  # seen by a clock that was moved ahead
    moved(loop, 2 * HOUR)
    loop.run_once()
    assert row_of(db, claim.id)["state"] == "running"
    assert 25 < loop.claims.period.at - time.monotonic() <= 30, "a lease for everybody to renew"
    loop.claims.period.set_due_at(0)
    loop.run_once()
    assert row_of(db, claim.id)["state"] == "queued", "who has not renewed by then is gone"


def test_a_clock_step_between_look_and_reap_costs_no_claim(db: psycopg.Connection) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    db.execute("UPDATE pgsched.runs SET lease_until = clock_timestamp() - interval '1 second'")
    before = leadership.find_due_work(db, 0).now_s - HOUR
    assert expired_leases.find_bad_leases(db, 100, before) == ([], [])
    assert expired_leases.reap(db, [claim.id], 5, before) == []
    assert row_of(db, claim.id)["state"] == "running"
    assert expired_leases.find_bad_leases(db, 100, before + HOUR) == ([claim.id], [])
    assert [run["id"] for run in expired_leases.reap(db, [claim.id], 5, before + HOUR)] == [claim.id]


def test_after_a_clock_step_back_long_leases_are_shortened(db: psycopg.Connection) -> None:
    worker = a_worker(db)
    add_runs(db, 2)
    held, other = take(db, 2)
    loop = lead(db)
    loop.run_once()
    db.execute("UPDATE pgsched.runs SET lease_until = lease_until + interval '1 hour', worker_id = %s", [worker])
    db.execute("UPDATE pgsched.runs SET worker_id = -1 WHERE id = %s", [other.id])
    moved(loop, -HOUR)
    loop.run_once()
    left = "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM pgsched.runs WHERE id = %s"
    assert 25 < db.execute(left, [held.id]).fetchone()[0] <= 30  # type: ignore[index]
    assert 55 < db.execute(left, [other.id]).fetchone()[0] <= 60, "of a worker that nobody knows"  # type: ignore[index]


def test_leases_that_a_conflict_left_long_are_shortened_in_the_next_round(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = a_worker(db)
    add_runs(db, 1)
    (claim,) = take(db)
    loop = lead(db)
    loop.run_once()
    db.execute("UPDATE pgsched.runs SET lease_until = lease_until + interval '1 hour', worker_id = %s", [worker])
    moved(loop, -HOUR)

    def conflict(*_: object) -> int:
        raise psycopg.errors.DeadlockDetected("deadlock detected")

    with monkeypatch.context() as patched:
        patched.setattr(expired_leases, "shorten_leases", conflict)
        loop.run_once()
    loop.run_once()
    left = "SELECT lease_until < clock_timestamp() + interval '31 s' FROM pgsched.runs WHERE id = %s"
    assert db.execute(left, [claim.id]).fetchone() == (True,)


def test_a_new_leader_shortens_leases_left_long_by_an_earlier_clock_step(db: psycopg.Connection) -> None:
    worker = a_worker(db)
    add_runs(db, 1)
    (claim,) = take(db)
    db.execute("UPDATE pgsched.runs SET lease_until = lease_until + interval '1 hour', worker_id = %s", [worker])
    lead(db).run_once()
    left = "SELECT lease_until < clock_timestamp() + interval '31 s' FROM pgsched.runs WHERE id = %s"
    assert db.execute(left, [claim.id]).fetchone() == (True,)


def test_a_leader_updates_seen_at_after_its_clock_was_moved_back(db: psycopg.Connection) -> None:
    loop = lead(db)
    db.execute("UPDATE pgsched.leader SET seen_at = seen_at + interval '1 hour'")
    loop.run_once()
    assert db.execute("SELECT seen_at <= clock_timestamp() FROM pgsched.leader").fetchone() == (True,)
