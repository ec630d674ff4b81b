"""Wait for a run or a backfill to end.

Invariant: the caller gets a note if no process is there to do the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from pgsched.core.lifecycle import ENDED_STATES
from pgsched.core.model import Kind, Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import backfills
from pgsched.db.queries.reports.evidence import workers_offering
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
                hint = hint_offered_tasks(conn, run["task"]) if run["kind"] == Kind.TASK else ""
                cure = hint or "; start a `pgsched worker`"
                note(f"no live worker offers {describe_offer(run)} on queue {run['queue']}{cure}")
        time.sleep(every_s)
    return run


def progress(
    conn: Connection[Any], backfill_id: int, note: Callable[[str], object], every_s: float = EVERY_S
) -> Iterator[Row]:
    """Yield a backfill as it goes on, the last time when it has ended. `note`: called once if no process leads."""
    begun, is_noted = time.monotonic(), False
    while (found := backfills.show_backfill(conn, backfill_id))["finished_at"] is None:
        yield found
        if not found["leading"] and not is_noted and time.monotonic() - begun > PATIENCE_S:
            is_noted = True
            note("no live leader works on it; start a `pgsched worker`")
        time.sleep(every_s)
    yield found


def is_offered(conn: Connection[Any], run: Row) -> bool:
    """Check whether a live worker takes this run."""
    return bool(workers_offering(conn, run).get("workers"))


def describe_offer(run: Row) -> str:
    """Return the task or kind that a worker has to offer to run it."""
    return f"task {run['task']}" if run["kind"] == Kind.TASK else f"kind {run['kind']}"
