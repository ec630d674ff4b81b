"""Graphs of runs as an operator reads and corrects them: show, retry and cancel a whole graph.

Invariant: a graph is all runs that edges connect, whichever program made them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgsched.core.model import Row
from pgsched.db.arrays import literal
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs.runs import CANCELLED, cancel_many, checked, unknown
from pgsched.db.rows import rows


def list_graph(conn: Connection[Any], run_id: int) -> list[Row]:
    """Return the runs of the graph that this run belongs to, the oldest first: `dependencies_tree`. Raises NotFound."""
    found = rows(conn, "dependencies_tree", {"id": checked(run_id)})
    if not any(run["id"] == run_id and run["state"] is not None for run in found):
        raise unknown(run_id)
    return found


def retry_graph(conn: Connection[Any], run_id: int) -> list[Row]:
    """Revive all runs of the graph that ended and did not succeed; return their ids and new states. Raises NotFound."""
    list_graph(conn, run_id)
    with conn.transaction():
        return rows(conn, "dependencies_retry", {"id": run_id})


def cancel_graph(conn: Connection[Any], run_id: int, reason: str | None = None) -> list[Row]:
    """Cancel all runs of the graph that have not ended; return what `cancel_many` returns. Raises NotFound."""
    ids = [run["id"] for run in list_graph(conn, run_id) if run["state"] in CANCELLED]
    # Children before parents: the end of a parent releases a child that runs whatever became of the parent.
    return cancel_many(conn, ids[::-1], reason, CANCELLED)


def left_behind(conn: Connection[Any], run_ids: Iterable[int], n: int = 100) -> list[Row]:
    """Return up to `n` runs that ended because of these runs, and do not come back with them: `dependencies_left`."""
    return rows(conn, "dependencies_left", {"ids": literal(run_ids), "n": n})


def waits_for(conn: Connection[Any], run_id: int) -> list[int]:
    """Return the ids of up to a hundred runs that a run still waits for."""
    return [row["parent_id"] for row in rows(conn, "dependencies_waits", {"id": run_id})]
