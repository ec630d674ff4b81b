"""What the test kit asks of a database. For tests only: it moves times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import cursor_on
from pgsched.db.queries.runs.claims import ended
from pgsched.db.statements import sql


def unfinished_runs(conn: Connection[Any], task: str | None) -> list[Row]:
    """The unfinished runs of a task, or of all; on a connection with whatever rows and pooling."""
    with cursor_on(conn, dict_row) as cursor:
        return cursor.execute(sql("runs_unfinished_of_task"), {"task": task}).fetchall()


def open_runs(conn: Connection[Any], tasks: Sequence[str], queues: list[str] | None, scheduled: bool) -> list[Any]:
    """(id, task, state) of runs that a drain waits for; `scheduled`: those that are due later too, from now on due."""
    values = {"tasks": list(tasks), "queues": queues, "scheduled": scheduled}
    if scheduled:
        conn.execute(sql("runs_hurry"), values)
    return conn.execute(sql("runs_open_of_tasks"), values).fetchall()


def ended_runs(conn: Connection[Any], since: datetime, queues: list[str] | None) -> dict[str, int]:
    """How many runs ended how since then."""
    return dict(conn.execute(sql("runs_ended_since"), {"since": since, "queues": queues}).fetchall())


def travel(conn: Connection[Any], by: timedelta) -> list[Any]:
    """Move everything that waits nearer by so much; (name, schedule, timezone, anchor) of the jobs with a schedule."""
    conn.execute(sql("time_travel"), {"by": by})
    return conn.execute(sql("jobs_of_clock")).fetchall()


def make_slot(conn: Connection[Any], job: str, slot: datetime) -> bool:
    """Give a slot that time passed its run; False: it has one."""
    made = conn.execute(sql("slot_travelled"), {"job": job, "slot": slot}).fetchone()
    if made is not None:
        conn.execute(sql("slot_triggered"), {"id": made[0], "slot": slot})
    return made is not None


def settle(conn: Connection[Any], ids: Sequence[int], tokens: Sequence[UUID]) -> int:
    """Record success as the worker with these claims would; returns how many were taken for the owner's."""
    return conn.execute(sql("settle_succeeded"), ended(ids, tokens)).rowcount
