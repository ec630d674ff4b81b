"""Queries of the test kit, for tests only: they move the times of runs, and make slots that a moved clock passed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import pq
from psycopg import sql as composing
from psycopg.rows import dict_row, tuple_row

from pgsched.core.model import Row
from pgsched.core.planning.catchup import Decision
from pgsched.db.callers.foreign import ForeignConnection
from pgsched.db.connection.connect import AsyncConnection, Connection
from pgsched.db.connection.transaction_pooling import cursor_on, cursor_on_async
from pgsched.db.queries.jobs.shared_calendars import add_times_of_calendars
from pgsched.db.queries.runs.claims import success_parameters
from pgsched.db.queries.runs.enqueue import wrong_connection
from pgsched.db.rows import fetch
from pgsched.db.statements import sql


def unfinished_runs(conn: Connection[Any] | ForeignConnection, task: str | None) -> list[Row]:
    """Return the unfinished runs of a Python task, or of all (None), in the order in which they were made.

    The connection may have any row factory, and may be behind a pooler. Raises InputError where it is none.
    """
    if isinstance(conn, ForeignConnection):
        return conn.fetch(sql("runs_unfinished_of_task"), {"task": task})
    if not isinstance(conn, Connection):
        raise wrong_connection(conn, "psycopg.Connection")
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


def shift_times(conn: Connection[Any], by: timedelta) -> list[Row]:
    """Bring the times of unfinished runs (except running ones) and of kept keys nearer by `by`.

    Returns the jobs that have a schedule and run its slots, as core/planning/job_schedule.py takes them.
    """
    conn.execute(sql("time_travel"), {"by": by})
    return add_times_of_calendars(conn, fetch(conn, "jobs_of_clock"))


def make_run_of_slot(conn: Connection[Any], job: str, decision: Decision) -> bool:
    """Make the run of a slot that the moved clock has passed; return False if the slot has a row already."""
    slot = decision.scheduled_at
    row = conn.execute(sql("slot_travelled"), {"job": job, "slot": slot}).fetchone()
    if row is not None:
        terms = {"interval_start": decision.interval_start, "nominal_at": decision.nominal_at}
        conn.execute(sql("slot_triggered"), {"id": row[0], "slot": slot, **terms})
    return row is not None


def settle(conn: Connection[Any], ids: Sequence[int], tokens: Sequence[UUID]) -> int:
    """Record success for these claims as their worker would; return how many claims were still valid."""
    return conn.execute(sql("settle_succeeded"), success_parameters(ids, tokens)).rowcount


def mark_transaction(conn: Connection[Any], channel: str, mark: str) -> list[str]:
    """Mark the caller's transaction: a listener of the channel hears the mark once it commits.

    Returns the marks that the session had before.
    """
    with cursor_on(conn, tuple_row) as cursor:
        row = cursor.execute(sql("recorder_mark"), {"channel": channel, "mark": mark}).fetchone()
    return marks_of(None if row is None else row[0])


async def mark_transaction_async(conn: AsyncConnection[Any], channel: str, mark: str) -> list[str]:
    """Mark the caller's transaction: the asyncio form of `mark_transaction`."""
    async with cursor_on_async(conn, tuple_row) as cursor:
        row = await (await cursor.execute(sql("recorder_mark"), {"channel": channel, "mark": mark})).fetchone()
    return marks_of(None if row is None else row[0])


def transaction_marks(conn: Connection[Any] | AsyncConnection[Any]) -> list[str]:
    """Return the newest mark of each channel in the open transaction of a connection, sync or asyncio.

    The connection must be idle in a transaction, which goes on.
    """
    result = conn.pgconn.exec_(sql("recorder_marks"))
    return marks_of(result.get_value(0, 0)) if result.status == pq.ExecStatus.TUPLES_OK else []


def marks_of(text: str | bytes | None) -> list[str]:
    """Return the marks in a text; bytes come from a connection that names no encoding."""
    return (text.decode() if isinstance(text, bytes) else text or "").split()


def listen_to_channel(conn: Connection[Any], channel: str) -> None:
    """Listen to a channel."""
    conn.execute(composing.SQL("LISTEN {}").format(composing.Identifier(channel)))


def hear_notifications(conn: Connection[Any]) -> None:
    """Let the connection's notify handlers hear of all transactions that have committed by now."""
    conn.execute("SELECT")
