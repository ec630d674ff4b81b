"""What holds runs back by somebody's will: pauses, limits that bind, full queues; and why a certain run waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgsched.core import waiting_reasons
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import queues
from pgsched.db.rows import one
from pgsched.services.status_model import Binding, FullQueue, Paused


def why(conn: Connection[Any], run: Mapping[str, Any]) -> str | None:
    """What keeps this run from starting, if it is pauses or limits."""
    if run["state"] not in ("queued", "waiting"):
        return None
    row = one(conn, "run_holding", {"id": run["id"]})
    limited = run["state"] == "waiting" and run["ready_at"] is not None
    return None if row is None else waiting_reasons.why(row, "waiting" if limited else "queued", run["queue"])


def pauses(conn: Connection[Any]) -> list[Paused]:
    """What is paused now."""
    found = []
    for row in queues.list_pauses(conn):
        since_s = (row["now"] - row["paused_at"]).total_seconds()
        left_s = None if row["resume_at"] is None else (row["resume_at"] - row["now"]).total_seconds()
        when = (row["paused_at"], row["paused_by"], row["reason"], row["resume_at"])
        found.append(Paused(row["what"], row["name"], *when, since_s, left_s))
    return found


def binding(conn: Connection[Any]) -> tuple[list[Binding], list[FullQueue]]:
    """The limits that hold runs now, and the queues that are full."""
    found = [
        Binding(f"key {row['name']}", row["admitted"], row["waiting"], row["applied"])
        for row in queues.list_limits(conn)
        if row["waiting"]
    ]
    full = []
    for row in queues.list_queues(conn, bounded=True):
        limited = row["concurrency_limit"] is not None or row["rate"] is not None
        if limited and row["depth"]:
            found.append(Binding(f"queue {row['name']}", row["running"], row["depth"], row["applied"]))
        if row["max_depth"] is not None and row["depth"] >= row["max_depth"]:
            full.append(FullQueue(row["name"], row["depth"], row["max_depth"], row["on_full"]))
    return found, full


def full_problems(full: list[FullQueue]) -> list[str]:
    """A full queue loses work, or refuses it."""
    then = {"reject": "new runs are refused", "shed_oldest": "its oldest runs are cancelled"}
    return [
        f"queue {queue.name} is full: {queue.depth} runs wait, {queue.max_depth} may; {then[queue.on_full]}"
        for queue in full
    ]
