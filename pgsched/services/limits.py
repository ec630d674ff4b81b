"""The reason why a certain run waits, if pauses or limits hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgsched.core import waiting_reasons
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports.evidence import pauses_and_limits_of


def explain_hold(conn: Connection[Any], run: Mapping[str, Any]) -> str | None:
    """Return which pauses or limits keep this run from starting; None if there are none."""
    if run["state"] not in ("queued", "waiting"):
        return None
    row = pauses_and_limits_of(conn, run["id"])
    limited = run["state"] == "waiting" and run["ready_at"] is not None
    return (
        None if row is None else waiting_reasons.describe_holds(row, "waiting" if limited else "queued", run["queue"])
    )
