"""`explain` of a slot that was skipped for overlap also says what the earlier run waits for."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg

from tests.support.db.explaining import add, hour, why


def put(db: psycopg.Connection, slot: datetime, state: str, **more: Any) -> None:
    columns = {"scheduled_at": slot, "created_at": slot, "state": state, "task": "t", "origin": "schedule"} | more
    db.execute(
        f"INSERT INTO pgsched.runs (job_id, {', '.join(columns)}) SELECT id{', %s' * len(columns)} FROM pgsched.jobs",
        list(columns.values()),
    )


def test_a_slot_skipped_for_overlap_says_what_the_earlier_run_waits_for(db: psycopg.Connection) -> None:
    add(db)
    put(db, hour(db, 2), "waiting", ready_at=hour(db, 2))
    put(db, hour(db, 1), "skipped", reason="overlap: run 1 was not finished", finished_at=hour(db, 1))
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('default', 0)")
    found = why(db, hour(db, 1))
    assert found.answer == "overlap"
    assert "overlap: run 1 was not finished; run 1 is not finished yet: it waits for its limits since" in found.text
    assert found.text.endswith("queue default: 0 at once, 0 are queued or running.")
    db.execute("UPDATE pgsched.runs SET state = 'dead', finished_at = now() WHERE id = 1")
    assert why(db, hour(db, 1)).text.endswith("overlap: run 1 was not finished.")
