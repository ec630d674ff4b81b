"""The leader sleeps between its rounds while one of its duties has to wait."""

from __future__ import annotations

import time

import psycopg
import pytest

from pgsched.db.queries.leader import expired_leases
from pgsched.leader.duties.housekeeping import AlertsDuty
from tests.support.db.clocks import moved
from tests.support.db.leading import duty_of, lead


def test_while_the_clock_is_not_trusted_the_leader_sleeps(db: psycopg.Connection) -> None:
    loop = lead(db)
    loop.run_once()
    moved(loop, 7200.0)
    loop.run_once()
    duty_of(loop, AlertsDuty).period.set_due_at(0.0)
    waits = [loop.run_once() for _ in range(3)]
    assert loop.clock.trusted_at > time.monotonic()
    assert min(waits) > 0.5


def test_while_a_duty_backs_off_the_leader_sleeps(db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired_leases, "find_bad_leases", lambda conn, *_, **__: conn.execute("SELECT 1/0").fetchall())
    loop = lead(db, reap_every_s=0.2)
    loop.run_once()
    loop.claims.period.set_due_at(0.0)
    waits = [loop.run_once() for _ in range(3)]
    assert min(waits) > 0.05
