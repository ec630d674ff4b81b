"""With many workers, each a candidate for leader, every slot gets one row and every run is made once."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.db.setting import add_jobs, slots
from tests.support.fleet import Fleet, one, unaccounted
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long


@pytest.mark.parametrize("workers", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (5, 8))])
def test_ten_thousand_slots_run_once_each(workers: int, fleet: Fleet, db: psycopg.Connection) -> None:
    crowd = fleet.start(workers, "--concurrency", "4")
    add_jobs(db, 500, 20, task="note")
    open_runs = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"
    wait_until(lambda: slots(db)[0] >= 10_000 and not one(db, open_runs), 90, "10,000 runs to end")
    assert slots(db) == (10_000, 10_000)
    assert db.execute("SELECT DISTINCT state, attempt FROM pgsched.runs").fetchall() == [("succeeded", 1)]
    assert unaccounted(db) == []
    notes = db.execute("SELECT count(*), count(DISTINCT run_id), count(token) FROM ledger").fetchone()
    assert notes == (10_000, 10_000, 10_000)
    assert one(db, "SELECT count(DISTINCT pid) FROM ledger") == workers, "everybody took part"
    assert one(db, "SELECT count(*) FROM pgsched.leader") == 1
    assert all(member.alive for member in crowd)
