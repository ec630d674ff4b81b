"""Queries of the test kit, for tests only: they move the times of runs, and make slots that a moved clock passed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.transaction_pooling import cursor_on
from pgsched.db.queries.runs.claims import success_parameters
from pgsched.db.statements import sql


def unfinished_runs(conn: Connection[Any], task: str | None) -> list[Row]:
    """Return the unfinished runs of a Python task, or of all (None), in the order in which they were made.

    The connection may have any row factory, and may be behind a pooler.
    """
    with cursor_on(conn, dict_row) as cursor:
        return cursor.execute(sql("runs_unfinished_of_task"), {"task": task}).fetchall()


def list_runs_to_drain(
    conn: Connection[Any], tasks: Sequence[str], queues: list[str] | None, scheduled: bool
) -> list[Any]:
    """Return (id, task, state) of up to 20 open runs of these tasks that a drain still waits for.

    `queues`: only these, None: all. `scheduled`: runs that are due later count as well, and become due now.
    """
    values = {"tasks": list(tasks), "queues": queues, "scheduled": scheduled}
    if scheduled:
        conn.execute(sql("runs_hurry"), values)
    return conn.execute(sql("runs_open_of_tasks"), values).fetchall()


def ended_runs(conn: Connection[Any], since: datetime, queues: list[str] | None) -> dict[str, int]:
    """Count the Python runs that have ended since `since`, by state."""
    return dict(conn.execute(sql("runs_ended_since"), {"since": since, "queues": queues}).fetchall())


def shift_times(conn: Connection[Any], by: timedelta) -> list[Any]:
    """Bring the times of unfinished runs (except running ones) and of kept keys nearer by `by`.

    Returns (name, schedule, timezone, anchor) of the jobs that have a schedule and are not paused.
    """
    conn.execute(sql("time_travel"), {"by": by})
    return conn.execute(sql("jobs_of_clock")).fetchall()


def make_run_of_slot(conn: Connection[Any], job: str, slot: datetime) -> bool:
    """Make the run of a slot that the moved clock has passed; return False if the slot has a row already."""
    row = conn.execute(sql("slot_travelled"), {"job": job, "slot": slot}).fetchone()
    if row is not None:
        conn.execute(sql("slot_triggered"), {"id": row[0], "slot": slot})
    return row is not None


def settle(conn: Connection[Any], ids: Sequence[int], tokens: Sequence[UUID]) -> int:
    """Record success for these claims as their worker would; return how many claims were still valid."""
    return conn.execute(sql("settle_succeeded"), success_parameters(ids, tokens)).rowcount
