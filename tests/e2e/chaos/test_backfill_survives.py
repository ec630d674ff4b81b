"""A backfill settles each slot once with real workers, although its client has gone and its leader is killed."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.jobs.backfills import Request
from tests.support.fleet import Fleet, one, wait_for_leader
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

SLOTS = 100
WATCH = "SELECT count(*) FROM pgsched.runs WHERE backfill_id = %s AND phase < 3"


def test_a_backfill_survives_its_client_and_its_leader(fleet: Fleet, db: psycopg.Connection) -> None:
    fleet.start(2)
    jobs.add(db, {"name": "a", "task": "note", "schedule": "0 0 * * *", "overlap": "allow"})
    number = backfills.add_backfill(db, "a", Request("2026-01-01", "2026-04-11", max_active=4))["id"]
    most = 0

    def so_many(n: int) -> bool:
        nonlocal most
        most = max(most, one(db, WATCH, number))
        return bool(one(db, "SELECT count(*) >= %s FROM pgsched.runs WHERE state = 'succeeded'", n))

    wait_until(lambda: so_many(20), what="the backfill to get going")
    fleet.by_pid(wait_for_leader(db)).kill()
    wait_until(lambda: so_many(SLOTS), timeout=60, what="all slots")
    wait_until(lambda: backfills.show_backfill(db, number)["state"] == "finished", what="the end")
    assert most <= 4
    assert one(db, "SELECT count(DISTINCT scheduled_at) FROM pgsched.runs WHERE job_id = 1") == SLOTS
    # Work that the killed worker had done but not settled was done again (at least once): count settled work only.
    settled = "SELECT count(*) FROM ledger l JOIN pgsched.runs r ON (r.id, r.token) = (l.run_id, l.token)"
    assert one(db, settled) == SLOTS
