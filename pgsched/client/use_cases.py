"""What the handles of runs can do, as functions of a connection: the services behind `pgsched.app.run_handle`.

Each function takes a connection of any kind that pgsched.db.callers knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pgsched.app.options import check_changes, check_reason
from pgsched.core.lifecycle import ENDED_STATES
from pgsched.core.model import State
from pgsched.core.run_info import LogLine, RunInfo, RunOutcome
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.failures import raise_explained
from pgsched.db.queries.runs import outcomes, runs
from pgsched.services.runs import changes, reading
from pgsched.services.runs.detail import read_start_conditions
from pgsched.services.runs.waiting import describe_offer


def read_info(conn: Connection[Any], run_id: int) -> RunInfo:
    """Return all that is known about a run. Raises NotFound."""
    return reading.read_info(conn, run_id)


def find_outcome(conn: Connection[Any], run_id: int) -> RunOutcome | None:
    """Return how a run has ended, or its state so far; None where there is no such run."""
    return reading.find_outcome(conn, run_id)


def find_ended(conn: Connection[Any], ids: Sequence[int]) -> dict[int, str | None]:
    """Return the states of those of these runs that have ended; None for a run that does not exist."""
    with raise_explained():
        return outcomes.ended(conn, ids)


def read_log(conn: Connection[Any], run_id: int, attempt: int | None, stream: str | None) -> list[LogLine]:
    """Return what a run has printed and logged so far. Raises InputError or NotFound."""
    return reading.read_log(conn, run_id, attempt, stream)


def cancel(conn: Connection[Any], run_id: int, why: str | None) -> State:
    """Cancel a run, or ask its worker to stop it; return its state after that. Raises InputError or NotFound."""
    done = changes.cancel(conn, run_id, None if why is None else check_reason("why", why)).result
    return State.RUNNING if done == changes.REQUESTED else State(done)


def retry(conn: Connection[Any], run_id: int, now: bool) -> State:
    """Revive a run that ended without success; return its state after that. Raises InputError or NotFound."""
    return State(changes.retry(conn, run_id, now=now).state)


def update(conn: Connection[Any], run_id: int, priority: int | None, at: datetime | None, queue: str | None) -> State:
    """Change a run that has not started; return its state after that. Raises InputError or NotFound."""
    return changes.update(conn, run_id, **check_changes(priority, at, queue))


def explain_waiting(conn: Connection[Any], run_id: int) -> str:
    """Return the state of a run that has not ended, and what keeps it from starting."""
    run = runs.show_run(conn, run_id)
    found = read_start_conditions(conn, run)
    if run["state"] in ENDED_STATES:
        return f"it is {run['state']} by now"
    if not found.offered:
        cure = found.hint or "; start a `pgsched worker`"
        return f"it is {run['state']}, and no live worker offers {describe_offer(run)} on queue {run['queue']}{cure}"
    return f"it is {run['state']}" + (f": {found.held_by}" if found.held_by else "")
