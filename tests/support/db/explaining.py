"""Jobs whose slots a test asks `explain` about, and its answers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from pgsched.core.explain import Explanation
from pgsched.db.queries.jobs import jobs
from pgsched.services.jobs.explain import explain_slot
from tests.support.db.passing import keep_next_slots, now, pass_time

HOUR = timedelta(hours=1)
LENGTH = re.compile(r"(?:[0-9.]+ (?:second|minute|hour|day)s?\b ?)+")
COUNTS = re.compile(r", \d+ (?:are queued or running|wait before it)")
NOW = re.compile(r"to [-0-9]{10} [:0-9]{8} UTC: no process leads")
UNKNOWN = ("not decided yet, or no slot at that time", "no slot has a row there")


def add(db: psycopg.Connection, hours: float = 3, **columns: Any) -> None:
    """Add an hourly job, and move its instants back by `hours`."""
    jobs.add(db, {"name": "a", "task": "t", "schedule": "@hourly"} | columns)
    pass_time(db, hours * 3600)


def led(db: psycopg.Connection, begin: str = "30 days", end: str = "0") -> None:
    """Add a term of a leader that began `begin` ago and was last seen `end` ago."""
    db.execute(
        "INSERT INTO pgsched.leader (term, holder, hostname, pid, elected_at, seen_at)"
        " SELECT coalesce(max(term), 0) + 1, 'w', 'h', 1, clock_timestamp() - %s::interval,"
        " clock_timestamp() - %s::interval FROM pgsched.leader",
        [begin, end],
    )


def hour(db: psycopg.Connection, back: int = 0) -> datetime:
    """Return the last full hour, or the one `back` hours before it."""
    return now(db).astimezone(UTC).replace(minute=0, second=0, microsecond=0) - back * HOUR


def why(db: psycopg.Connection, at: datetime | str | None = None, name: str = "a") -> Explanation:
    """Return the program's answer. The SQL function must give the same, or say that it cannot know."""
    found = explain_slot(db, name, at.isoformat() if isinstance(at, datetime) else at)
    if not isinstance(at, str) and "(deleted)" not in found.job:
        keep_next_slots(db)
        said = said_by_sql(db, at, name)
        unknown = any(words in said for words in UNKNOWN)
        assert unknown or comparable(said) == expected(found.text, said), said
    return found


def said_by_sql(db: psycopg.Connection, at: datetime | None, name: str = "a") -> str:
    row = db.execute("SELECT pgsched.explain(%s, %s)", [name, at]).fetchone()
    assert row is not None
    return str(row[0])


def expected(text: str, said: str) -> str:
    """Return the program's answer as SQL gives it, which does not always know that an instant is no slot."""
    if said.startswith("Time "):
        text = said.partition(" of job ")[0] + " of job " + text[text.index("Slot ") :].partition(" of job ")[2]
    return comparable(text)


def comparable(text: str) -> str:
    """Return the text without lengths of time, some of which grow while the test runs.

    Counts of runs under a limit are left out, too, because a producer would count its own only.
    """
    return LENGTH.sub("so long", COUNTS.sub("", NOW.sub("to now: no process leads", text)))


def stamp(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def put(db: psycopg.Connection, slot: datetime, state: str, **more: Any) -> None:
    """Add the run of a slot in a given state."""
    columns = {"scheduled_at": slot, "created_at": slot, "state": state, "task": "t", "origin": "schedule"} | more
    if state in ("succeeded", "dead", "cancelled", "skipped", "missed"):
        columns = {"finished_at": slot + timedelta(seconds=3)} | columns
    db.execute(
        f"INSERT INTO pgsched.runs (job_id, {', '.join(columns)}) SELECT id{', %s' * len(columns)} FROM pgsched.jobs",
        list(columns.values()),
    )
