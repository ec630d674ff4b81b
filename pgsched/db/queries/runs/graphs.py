"""The rule: a graph is what edges bind together, whoever made them; an operator reads and corrects it as a whole."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs.runs import CANCELLED, cancel_many, checked, unknown
from pgsched.db.rows import rows


def tree(conn: Connection[Any], run_id: int) -> list[Row]:
    """The runs of the graph that this run belongs to, the oldest first: `dependencies_tree`. NotFound."""
    found = rows(conn, "dependencies_tree", {"id": checked(run_id)})
    if not any(run["id"] == run_id and run["state"] is not None for run in found):
        raise unknown(run_id)
    return found


def retry(conn: Connection[Any], run_id: int) -> list[Row]:
    """Revive all runs of the graph that ended and did not succeed; their ids and new states. NotFound."""
    tree(conn, run_id)
    with conn.transaction():
        return rows(conn, "dependencies_retry", {"id": run_id})


def cancel(conn: Connection[Any], run_id: int, reason: str | None = None) -> list[Row]:
    """Cancel all runs of the graph that have not ended; see `run_cancel_many` in sql/runs.sql. NotFound."""
    ids = [run["id"] for run in tree(conn, run_id) if run["state"] in CANCELLED]
    # the last first: a run must not be let go because one that it would run after in any case was cancelled
    return cancel_many(conn, ids[::-1], reason, CANCELLED)


def waits_for(conn: Connection[Any], run_id: int) -> list[int]:
    """The runs that a run still waits for."""
    return [row["parent_id"] for row in rows(conn, "dependencies_waits", {"id": run_id})]
