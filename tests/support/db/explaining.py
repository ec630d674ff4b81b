"""Jobs whose slots are explained, and the answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from pgsched.core.explain import Explanation
from pgsched.db.queries.jobs import jobs
from pgsched.services.jobs.explain import explain_slot
from tests.support.db.passing import now, pass_time

HOUR = timedelta(hours=1)


def add(db: psycopg.Connection, hours: float = 3, **columns: Any) -> None:
    """An hourly job that began so many hours ago, with its instants moved back as well."""
    jobs.add(db, {"name": "a", "task": "t", "schedule": "@hourly"} | columns)
    pass_time(db, hours * 3600)


def led(db: psycopg.Connection, begin: str = "30 days", end: str = "0") -> None:
    """A term that lasted from so long ago until so long ago."""
    db.execute(
        "INSERT INTO pgsched.leader (term, holder, hostname, pid, elected_at, seen_at)"
        " SELECT coalesce(max(term), 0) + 1, 'w', 'h', 1, clock_timestamp() - %s::interval,"
        " clock_timestamp() - %s::interval FROM pgsched.leader",
        [begin, end],
    )


def hour(db: psycopg.Connection, back: int = 0) -> datetime:
    """The full hour so many hours ago."""
    return now(db).astimezone(UTC).replace(minute=0, second=0, microsecond=0) - back * HOUR


def why(db: psycopg.Connection, at: datetime | str | None = None, name: str = "a") -> Explanation:
    return explain_slot(db, name, at.isoformat() if isinstance(at, datetime) else at)


def stamp(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def put(db: psycopg.Connection, slot: datetime, state: str, **more: Any) -> None:
    """A run of the schedule as it may be found."""
    columns = {"scheduled_at": slot, "created_at": slot, "state": state, "task": "t", "origin": "schedule"} | more
    if state in ("succeeded", "dead", "cancelled", "skipped", "missed"):
        columns = {"finished_at": slot + timedelta(seconds=3)} | columns
    db.execute(
        f"INSERT INTO pgsched.runs (job_id, {', '.join(columns)}) SELECT id{', %s' * len(columns)} FROM pgsched.jobs",
        list(columns.values()),
    )
