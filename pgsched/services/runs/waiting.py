"""Wait for a run to end, and explain what a run waits for.

Invariant: the caller gets a note if no process is there to do the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from pgsched.core import waiting_reasons
from pgsched.core.lifecycle import ENDED_STATES
from pgsched.core.model import Kind, Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports.evidence import pauses_and_limits_of, workers_offering
from pgsched.db.queries.reports.name_hints import hint_offered_tasks
from pgsched.db.queries.runs import runs

EVERY_S = 0.2
PATIENCE_S = 3.0  # until the note


def until_ended(conn: Connection[Any], run_id: int, note: Callable[[str], object], every_s: float = EVERY_S) -> Row:
    """Return the run once it has ended. `note`: called once if no worker would take it."""
    begun, is_noted = time.monotonic(), False
    while (run := runs.show_run(conn, run_id))["state"] not in ENDED_STATES:
        if run["state"] == "queued" and not is_noted and time.monotonic() - begun > PATIENCE_S:
            is_noted = True
            if not is_offered(conn, run):
                note(describe_missing_worker(conn, run))
        time.sleep(every_s)
    return run


def is_offered(conn: Connection[Any], run: Row) -> bool:
    """Check whether a live worker takes this run."""
    return bool(workers_offering(conn, run).get("workers"))


def describe_missing_worker(conn: Connection[Any], run: Row) -> str:
    """Return that no live worker takes this run, with the names of similar tasks or what to start."""
    hint = hint_offered_tasks(conn, run["task"]) if run["kind"] == Kind.TASK else ""
    cure = hint or "; start a `pgsched worker`"
    return f"no live worker offers {describe_offer(run)} on queue {run['queue']}{cure}"


def describe_offer(run: Row) -> str:
    """Return the task or kind that a worker has to offer to run it."""
    return f"task {run['task']}" if run["kind"] == Kind.TASK else f"kind {run['kind']}"


def explain_hold(conn: Connection[Any], run: Mapping[str, Any]) -> str | None:
    """Return which pauses or limits keep this run from starting; None if there are none."""
    if run["state"] not in ("queued", "waiting"):
        return None
    row = pauses_and_limits_of(conn, run["id"])
    limited = run["state"] == "waiting" and run["ready_at"] is not None
    return (
        None if row is None else waiting_reasons.describe_holds(row, "waiting" if limited else "queued", run["queue"])
    )
