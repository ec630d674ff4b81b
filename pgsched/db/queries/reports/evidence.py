"""What is known about one slot of a job, or about why one run waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import one, rows


def run_at(conn: Connection[Any], job_id: int, at: datetime) -> Row | None:
    """The slot of a job at exactly this instant, if it has a row."""
    return one(conn, "explain_row", {"job_id": job_id, "at": at})


def slots_near(conn: Connection[Any], job_id: int, at: datetime | None) -> list[datetime]:
    """The slots with a row on both sides of an instant; None: the newest."""
    return [row["scheduled_at"] for row in rows(conn, "explain_near", {"job_id": job_id, "at": at})]


def terms(conn: Connection[Any], since: datetime) -> list[Row]:
    """Who led since then."""
    return rows(conn, "explain_terms", {"since": since})


def passed_over(conn: Connection[Any], job_id: int, slot: datetime) -> Row | None:
    """The stretch of slots, passed over by an edit, that a slot lies in."""
    return one(conn, "explain_passed_over", {"job_id": job_id, "slot": slot})


def parents(conn: Connection[Any], run_id: int) -> list[Row]:
    """The runs that a run waits for."""
    return rows(conn, "explain_parents", {"id": run_id})


def open_runs(conn: Connection[Any], run_id: int) -> list[Row]:
    """The unfinished runs of the same job that hold up a run."""
    return rows(conn, "explain_open", {"id": run_id})


def holding(conn: Connection[Any], run_id: int) -> Row | None:
    """The pauses and limits that keep a run from starting: run_holding in sql/runs.sql."""
    return one(conn, "run_holding", {"id": run_id})


def workers_offering(conn: Connection[Any], run: Mapping[str, Any]) -> Row:
    """How many workers are alive (`alive`), and how many take runs of this queue, kind and task (`workers`)."""
    return one(conn, "workers_offering", {name: run[name] for name in ("queue", "kind", "task")}) or {}
