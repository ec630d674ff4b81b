"""A duty in which the leader stands still until the server ends its session is left undone after the second time."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest

from pgsched.config import LeaderSettings
from pgsched.leader import backfill, election
from pgsched.leader.election import Leader
from tests.support.db.poisoning import add_backfills
from tests.support.waiting import wait_until

pytestmark = pytest.mark.pg14


def test_two_sessions_are_enough(dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    add_backfills(db, 1)
    calls: list[float] = []

    def stuck(conn: psycopg.Connection, *_: object) -> Any:
        calls.append(time.monotonic())
        time.sleep(2.0)
        return conn.execute("SELECT").fetchall()

    monkeypatch.setattr(backfill, "work", stuck)
    leader = Leader(dsn, LeaderSettings(election_every_s=0.1, session_timeout_s=1.0), "leader")
    thread = threading.Thread(target=leader.run, daemon=True)
    thread.start()
    try:
        noted = "SELECT tries FROM pgsched.set_aside WHERE (duty, row_id) = ('backfills', 'session')"
        wait_until(lambda: db.execute(noted.encode()).fetchone() == (2,), 30, "the second session to be lost")
        db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('once', 't')")
        slot = "SELECT count(*) FROM pgsched.runs WHERE origin = 'schedule'"
        wait_until(lambda: db.execute(slot.encode()).fetchone() == (1,), 15, "the slot")
        wait_until(lambda: leader.heard_at is not None and leader.heard_at > calls[-1] + 3.0, 15, "further rounds")
        assert len(calls) == 2
    finally:
        leader.stop()
        thread.join(10)


def test_errors_far_apart_end_no_process(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors in a row say that this process cannot lead."""
    rounds: list[int] = []
    leader = Leader(dsn, LeaderSettings(), "leader", on_fatal=lambda error: pytest.fail(str(error)))

    def broken(_: object) -> float:
        rounds.append(1)
        if len(rounds) > 2 * election.UNFORESEEN:
            leader.stop()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(election.Duties, "perform", broken)
    monkeypatch.setattr(election, "back_off_s", lambda *_: 0.01)
    monkeypatch.setattr(election, "CALM_S", 0.0)
    leader.run()
    assert len(rounds) > 2 * election.UNFORESEEN
