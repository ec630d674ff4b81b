"""`explain` of slots on excluded dates, whose one row grows as they are decided."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg

from tests.support.db.explaining import add, hour, led, why
from tests.support.db.passing import lead, pass_time

HOUR = timedelta(hours=1)


def test_each_slot_of_a_stretch_that_grew_is_explained_by_its_row(db: psycopg.Connection[Any]) -> None:
    led(db)
    add(db, 0)
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date, until_date, reason)"
               " SELECT id, current_date - 9, current_date + 9, 'holidays' FROM pgsched.jobs")  # fmt: skip
    lead(db)
    for _ in range(4):
        pass_time(db, 3600)
        lead(db)
    row = db.execute("SELECT count(*), max(covers_count) FROM pgsched.runs").fetchone()
    assert row == (1, 4)
    for back in range(4):
        found = why(db, hour(db, back))
        assert (found.answer, found.run_id) == ("excluded", 1), found.text
        assert "holidays" in found.text
