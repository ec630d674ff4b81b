"""Evidence for explanations: what became of one slot of a job, and why one run waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import first_row, rows


def slot_at(conn: Connection[Any], job_id: int, at: datetime) -> Row | None:
    """Return the slot of a job at this instant, if it has a row; an instant of whole seconds means that second."""
    return first_row(conn, "explain_row", {"job_id": job_id, "at": at})


def slots_near(conn: Connection[Any], job_id: int, at: datetime | None) -> list[datetime]:
    """Return the slots with a row next to an instant, one on each side; None: the newest one.

    Also the earlier slots of a job that runs once, where an edit moved it and their rows are still to be made.
    """
    return [row["scheduled_at"] for row in rows(conn, "explain_near", {"job_id": job_id, "at": at})]


def leader_terms(conn: Connection[Any], since: datetime) -> list[Row]:
    """Return the terms of leaders that lasted beyond `since`."""
    return rows(conn, "explain_terms", {"since": since})


def passed_over(conn: Connection[Any], job_id: int, slot: datetime) -> Row | None:
    """Return the stretch of slots that an edit passed over, and in which this slot lies."""
    return first_row(conn, "explain_passed_over", {"job_id": job_id, "slot": slot})


def parents(conn: Connection[Any], run_id: int) -> list[Row]:
    """Return the runs, or slots of other jobs, that a run still waits for."""
    return rows(conn, "explain_parents", {"id": run_id})


def runs_in_front(conn: Connection[Any], run_id: int) -> list[Row]:
    """Return the unfinished runs of the same job that a run waits for."""
    return rows(conn, "explain_open", {"id": run_id})


def pauses_and_limits_of(conn: Connection[Any], run_id: int) -> Row | None:
    """Return the pauses and limits that keep a run from starting: `run_holding` in sql/runs.sql."""
    return first_row(conn, "run_holding", {"id": run_id})


def workers_offering(conn: Connection[Any], run: Mapping[str, Any]) -> Row:
    """Count the live workers (`alive`), and those that take runs of this queue, kind and task (`workers`)."""
    return first_row(conn, "workers_offering", {name: run[name] for name in ("queue", "kind", "task")}) or {}
