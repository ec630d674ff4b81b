"""Heartbeats renew leases, keep the worker's row or register again, and sign off; a bug in them ends the worker."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import psycopg
import pytest

from pgsched.db.queries.runs import claims, workers
from pgsched.errors import PgschedError
from pgsched.worker import heartbeat as heartbeat_module
from pgsched.worker.leases import Leases
from tests.support.db.setting import Open, add_runs, cut, let_expire, take
from tests.support.workers import Handler, becomes, make, play, registration


@pytest.mark.parametrize("guarded", [True, False])
def test_a_locked_run_costs_no_other_claim_its_lease(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(db, 3)
    locked, *others = take(db, 3)
    let_expire(db)
    person = connect(autocommit=False)
    person.execute("SELECT FROM pgsched.runs WHERE id = %s FOR UPDATE", [locked.id])
    worker = connect(options="-c lock_timeout=100ms")
    held = [c.key for c in (locked, *others)]
    if not guarded:
        cut(monkeypatch, "heartbeat", " OF r SKIP LOCKED", " OF r")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            claims.heartbeat(worker, 1, 30.0, held)
        return
    beat = claims.heartbeat(worker, 1, 30.0, held)
    assert beat.renewed == {c.key for c in others}
    assert beat.unsure == {locked.key}, "neither renewed nor lost"
    renewed = "SELECT id FROM pgsched.runs WHERE lease_until > clock_timestamp() ORDER BY id"
    assert [row[0] for row in db.execute(renewed).fetchall()] == [c.id for c in others]
    person.rollback()
    assert claims.heartbeat(worker, 1, 30.0, held).renewed == set(held)


def test_a_late_heartbeat_does_not_bring_a_stopped_worker_back(db: psycopg.Connection) -> None:
    gone, given_up = workers.insert_worker(db, registration()), workers.insert_worker(db, registration())
    workers.stop(db, gone, "w", stopped=True)
    db.execute(
        "UPDATE pgsched.workers SET stopped_at = seen_at WHERE id = %s", [given_up]
    )  # as the pruner does with a dead worker
    known = [claims.heartbeat(db, worker_id, 30.0, [], name="w").known for worker_id in (gone, given_up)]
    stopped = db.execute("SELECT id FROM pgsched.workers WHERE stopped_at IS NOT NULL ORDER BY id").fetchall()
    assert stopped == [(gone,), (given_up,)]
    assert known == [True, False], "who was given up, and lives, registers again"


def test_a_worker_does_not_write_to_the_row_of_another_with_its_number(db: psycopg.Connection) -> None:
    """A failover lost the row of the worker. The worker is draining, so it does not register again."""
    other = workers.insert_worker(db, replace(registration(), name="other"))
    claims.heartbeat(db, other, 30.0, [], claims.Vitals(stopping=True), name="w")
    workers.stop(db, other, "w", stopped=True)
    rows = db.execute("SELECT stopping_at, stopped_at FROM pgsched.workers").fetchall()
    assert rows == [(None, None)]


def test_a_heartbeat_that_fails_for_an_unknown_reason_ends_the_worker(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(heartbeat_module, "heartbeat", broken)

    async def scene() -> None:
        with pytest.raises(PgschedError, match="heartbeat failed: ZeroDivisionError"):
            await make(dsn, Handler()).run()

    play(scene)


def test_the_heartbeat_signs_the_worker_off(dsn: str, db: psycopg.Connection) -> None:
    worker_id = workers.insert_worker(db, registration())
    calls = heartbeat_module.HeartbeatCalls(lambda *_: None, lambda _: None, claims.Vitals)
    thread = heartbeat_module.Heartbeat(dsn, worker_id, registration(), Leases(3), calls)
    thread.start()
    thread.nudge.stop()
    thread.join(10)
    row = db.execute("SELECT stopping_at IS NOT NULL, stopped_at IS NOT NULL FROM pgsched.workers").fetchone()
    assert row == (True, True)


@pytest.mark.parametrize("other", [None, "another:1"])
def test_a_worker_whose_row_is_lost_registers_again(other: str | None, dsn: str, db: psycopg.Connection) -> None:
    """A failover to a standby that lagged loses the row, and may give its number to another worker."""
    handler = Handler()
    handler.go.set()

    async def scene() -> None:
        worker = make(dsn, handler)
        working = asyncio.create_task(worker.run())
        mine = "SELECT id FROM pgsched.workers WHERE name = %s"
        await becomes(lambda: db.execute(mine, ["w"]).fetchone(), "the worker to register")
        (before,) = db.execute(mine, ["w"]).fetchall()
        lose = "UPDATE pgsched.workers SET name = %s" if other else "DELETE FROM pgsched.workers"
        db.execute(lose, [other] if other else None)
        await becomes(lambda: db.execute(mine, ["w"]).fetchone(), "the worker to register again")
        (after,) = db.execute(mine, ["w"]).fetchall()
        assert after != before
        add_runs(db, 1)
        await becomes(lambda: db.execute("SELECT worker_id FROM pgsched.runs").fetchone() == after, "its own number")
        worker.stop()
        await working
        assert db.execute("SELECT name FROM pgsched.workers WHERE stopped_at IS NULL").fetchone() == (
            (other,) if other else None
        )

    play(scene)
