"""Workers behind a pooler manage with few connections, survive its restart, and find runs by polling."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.support.bouncer import Bouncer
from tests.support.fleet import Fleet, enqueue, one, unaccounted, wait_for_leader
from tests.support.pooled import SECONDLY, check_slots
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

Db = psycopg.Connection[Any]
Pooled = Callable[..., Bouncer]
MANY = "INSERT INTO pgsched.runs (task) SELECT 'note' FROM generate_series(1, %s)"
OPEN = "SELECT count(*) FROM pgsched.runs WHERE finished_at IS NULL AND job_id IS NULL"
TWICE = "SELECT count(*) - count(DISTINCT run_id) FROM ledger WHERE event = 'end'"


@pytest.mark.long
def test_three_workers_share_two_connections(pooled: Pooled, fleet_through: Callable[[Bouncer], Fleet], db: Db) -> None:
    bouncer = pooled(default_pool_size=2)
    fleet = fleet_through(bouncer)
    fleet.start(3, "--app", "tests.support.apps.pooled:app", "--lease", "5")
    db.execute(SECONDLY.encode())
    db.execute(MANY.encode(), [500])
    own = [enqueue(db, task) for task in ("own", "own_async") for _ in range(20)]
    wait_until(lambda: one(db, OPEN) == 0, 90, "all runs to end")
    wait_until(lambda: one(db, "SELECT count(*) > 2 FROM pgsched.runs WHERE job_id IS NOT NULL"), 90, "some slots")
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE id = ANY (%s) AND state = 'succeeded'", own) == 40
    assert one(db, TWICE) == 0
    assert one(db, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") <= 2 + 1 + 3 * 9
    check_slots(db)
    assert unaccounted(db) == []
    assert one(db, "SELECT count(*) FROM pgsched.attempts") == 0


@pytest.mark.long
def test_a_restart_of_the_pooler_under_load_loses_nothing(bouncer: Bouncer, fleet: Fleet, db: Db) -> None:
    fleet.start(2, "--lease", "3")
    db.execute(SECONDLY.encode())
    wait_for_leader(db)
    for _ in range(2):
        done = one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'")
        db.execute(MANY.encode(), [300])
        wait_until(lambda n=done: one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'") > n + 20, 30,
                   "work to go on")  # type: ignore[misc]  # fmt: skip
        bouncer.stop()
        bouncer.start()
    wait_until(lambda: one(db, OPEN) == 0, 60, "all runs to end")
    wait_until(lambda: one(db, "SELECT count(*) FROM pgsched.runs WHERE job_id IS NOT NULL") > 3, 60, "slots")
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE phase >= 3 AND state <> 'succeeded'") == 0
    check_slots(db)
    assert unaccounted(db) == []


@pytest.mark.long
def test_a_run_is_found_within_two_poll_periods(fleet: Fleet, db: Db) -> None:
    fleet.start(1, "--poll", "1")
    wait_for_leader(db)
    waits = []
    for _ in range(12):
        run_id = enqueue(db, "note")
        waits.append(
            float(
                wait_until(
                    lambda n=run_id: one(
                        db, "SELECT extract(epoch FROM started_at - created_at) FROM pgsched.runs WHERE id = %s", n
                    ),  # type: ignore[misc]
                    10,
                    "the run to start",
                )
            )
        )
        # wait for more than a poll period, so that the worker sleeps again
        idle_from = one(db, "SELECT clock_timestamp()")
        wait_until(lambda at=idle_from: one(db, "SELECT clock_timestamp() - %s > interval '1.3 s'", at), 10, "rest")  # type: ignore[misc]
    print(f"found after: median {statistics.median(waits):.2f} s, longest {max(waits):.2f} s, poll period 1 s")
    assert max(waits) <= 2.0
