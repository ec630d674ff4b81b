"""Start backfills in tests, and run the leader's rounds until they end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from pgsched.db.queries.jobs import backfills
from pgsched.db.queries.jobs.backfills import Request
from pgsched.leader import backfill

DAY = timedelta(days=1)
MAY = datetime(2026, 5, 1, tzinfo=UTC)
WEEK = [MAY + n * DAY for n in range(7)]


def work(db: psycopg.Connection) -> bool:
    """Run the leader's backfill duty once; return whether there is more to do at once."""
    with db.transaction():
        return backfill.run_backfills(db).more


def open_slots(db: psycopg.Connection) -> list[datetime]:
    rows = db.execute("SELECT scheduled_at FROM pgsched.runs WHERE phase < 3 ORDER BY id").fetchall()
    return [row[0] for row in rows]


def finish(db: psycopg.Connection, state: str = "succeeded") -> None:
    db.execute("UPDATE pgsched.runs SET state = %s, finished_at = clock_timestamp() WHERE phase < 3", [state])


def through(db: psycopg.Connection, number: int) -> Iterator[list[datetime]]:
    """Yield the open slots after each round until the backfill has ended; the runs of every round succeed."""
    while True:
        while work(db):
            pass
        if backfills.show_backfill(db, number)["finished_at"] is not None:
            return
        yield open_slots(db)
        finish(db)


def ask(db: psycopg.Connection, days: int = 7, **more: Any) -> int:
    return int(backfills.add_backfill(db, "a", Request("2026-05-01", f"2026-05-{days + 1:02}", **more))["id"])
