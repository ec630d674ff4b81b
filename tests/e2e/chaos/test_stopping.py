"""SIGTERM drains a worker: it claims nothing more, gives running handlers their grace time and hands back the rest.

A second SIGTERM ends the grace time at once.
"""

from __future__ import annotations

import signal
import time

import psycopg
import pytest

from tests.support.db.setting import row_of
from tests.support.fleet import Fleet, Member, enqueue, events, one, open_gate, state
from tests.support.waiting import wait_until


def busy(fleet: Fleet, db: psycopg.Connection, grace: str, gates: list[str]) -> tuple[Member, list[int]]:
    """Start a worker with one place for each of these gates, all of them taken. Return the worker and its runs."""
    (worker,) = fleet.start(1, "--concurrency", str(len(gates)), "--grace", grace)
    runs = [enqueue(db, "hold", gate=gate) for gate in gates]
    for run in runs:
        wait_until(lambda run=run: events(db, run, "start"), what="the start")  # type: ignore[misc]
    return worker, runs


def test_a_stopped_worker_claims_no_more_and_finishes_what_runs(fleet: Fleet, db: psycopg.Connection) -> None:
    worker, (first, second) = busy(fleet, db, "60", ["a", "b"])
    worker.signal(signal.SIGTERM)
    wait_until(lambda: worker.logged("draining"), what="the drain to begin")
    late = enqueue(db, "note")
    open_gate(db, "a")
    wait_until(lambda: state(db, first) == "succeeded", what="the first run to be settled within the grace time")
    assert worker.alive, "there is a free slot and a queued run, but it waits for the other one only"
    open_gate(db, "b")
    assert worker.ended() == 0
    assert state(db, second) == "succeeded"
    assert [row_of(db, late)[key] for key in ("state", "attempt")] == ["queued", 0]
    stopped = one(db, "SELECT stopped_at IS NOT NULL AND stopping_at IS NOT NULL FROM pgsched.workers")
    assert stopped is True
    assert one(db, "SELECT resigned_at IS NOT NULL FROM pgsched.leader") is True


@pytest.mark.long
def test_runs_that_outlast_the_grace_time_are_handed_back_without_a_charge(
    fleet: Fleet, db: psycopg.Connection
) -> None:
    worker, runs = busy(fleet, db, "1", ["a", "b", "c"])
    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    took = time.monotonic() - began
    print(f"drained with a grace time of 1 s in {took:.2f} s")
    assert took >= 1.0
    rows = [row_of(db, run) for run in runs]
    assert [(row["state"], row["attempt"], row["lease_until"]) for row in rows] == [("queued", 0, None)] * 3
    assert db.execute("SELECT DISTINCT outcome, attempt FROM pgsched.attempts").fetchall() == [("interrupted", 1)]
    fleet.start(1)
    open_gate(db, "a")
    wait_until(lambda: state(db, runs[0]) == "succeeded", what="the next worker to run it")
    assert row_of(db, runs[0])["attempt"] == 1


def test_a_second_signal_ends_the_grace_time(fleet: Fleet, db: psycopg.Connection) -> None:
    worker, (run,) = busy(fleet, db, "120", ["a"])
    worker.signal(signal.SIGTERM)
    wait_until(lambda: worker.logged("draining"), what="the drain to begin")
    assert events(db, run, "stopped") == [], "the first one leaves the handler alone"
    worker.signal(signal.SIGTERM)
    assert worker.ended(10) == 0
    assert [row_of(db, run)[key] for key in ("state", "attempt")] == ["queued", 0]
    assert len(events(db, run, "stopped")) == 1
