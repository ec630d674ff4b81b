"""What a program asks about runs that it waits for: mark them as awaited, find those that have ended, and read one.

Invariant: to mark a run is a statement of its own, outside of the caller's transaction. It never waits for a lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pgsched.core.model import Row
from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.json_values import program_value
from pgsched.db.queries.runs.runs import checked
from pgsched.db.rows import fetch, first_row

MOST = 10_000  # runs in one statement


def await_runs(conn: Connection[Any], ids: Iterable[int]) -> int:
    """Ask for a notification when one of these runs ends; return how many were locked and have to be asked again.

    Raises the driver's errors, for the loop to classify; so does `ended`.
    """
    return int(fetch(conn, "runs_await", {"ids": plain(ids)})[0]["n"])


def ended(conn: Connection[Any], ids: Iterable[int]) -> dict[int, str | None]:
    """Return the states of those of these runs that have ended. A run that does not exist has the state None."""
    return {row["id"]: row["state"] for row in fetch(conn, "runs_ended", {"ids": plain(ids)})}


def read_outcome(conn: Connection[Any], run_id: int) -> Row | None:
    """Return state, result, error, reason and traceback of a run; None where there is no such run.

    Raises InputError for a result that Python cannot read.
    """
    found = first_row(conn, "run_outcome", {"id": checked(run_id)})
    return None if found is None else found | {"result": program_value(found["result"])}
