"""What belongs to a task and to its worker: limits that are declared, retry rules, and the worker's default timeout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.db.setting import row_of
from tests.support.fleet import Fleet, fleet_on, one
from tests.support.waiting import wait_until

APP = "tests.support.apps.limited:app"


@pytest.fixture
def fleet(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_on(dsn, tmp_path) as fleet:
        yield fleet


def ended(db: psycopg.Connection, run: int) -> dict[str, Any]:
    wait_until(lambda: one(db, "SELECT phase >= 3 FROM pgsched.runs WHERE id = %s", run), 30, "the run to end")
    return row_of(db, run)


def test_a_worker_declares_limits_and_keeps_the_rules_of_its_tasks(fleet: Fleet, db: psycopg.Connection) -> None:
    fleet.await_start(fleet.launch("--default-timeout", "0.4", app=APP))
    limits = db.execute("SELECT name, concurrency, declared_by FROM pgsched.limits").fetchall()
    assert limits == [("task:limited.wait", 1, "limited")]
    first, second = (
        one(db, "SELECT pgsched.enqueue('limited.wait', '{\"seconds\": 30}', timeout => %s)", timeout)
        for timeout in (None, "0.1 s")
    )
    for run, seconds in ((first, "0.4"), (second, "0.1")):
        row = ended(db, run)
        assert (row["state"], row["error"]) == ("dead", f"timed out after {seconds} s")
        assert row["concurrency_key"] == "task:limited.wait"
    assert row_of(db, first)["finished_at"] <= row_of(db, second)["started_at"], "one at a time"
    value = ended(db, one(db, "SELECT pgsched.enqueue('limited.picky', '{\"kind\": \"value\"}')"))
    assert (value["state"], value["attempt"], value["reason"]) == ("dead", 1, "failed for good")
    again = one(db, "SELECT pgsched.enqueue('limited.picky', '{\"kind\": \"os\"}')")
    wait_until(lambda: row_of(db, again)["state"] == "scheduled", 20, "its first attempt")
    assert one(
        db, "SELECT available_at > clock_timestamp() + interval '59 minutes' FROM pgsched.runs WHERE id = %s", again
    )
