"""What became of the runs of a time, by job and task; and the tasks that are known, with counts of their runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows


def ended_by_job(
    conn: Connection[Any], since: datetime, until: datetime, most: int, from_hour: datetime, to_hour: datetime
) -> list[Row]:
    """Return what became of the newest `most` runs of a time: `report_ended` in sql/charts.sql.

    `inside`: counts those that ended between `from_hour` and `to_hour`.
    """
    values = {"since": since, "until": until, "n": most, "from_hour": from_hour, "to_hour": to_hour}
    with conn.transaction():
        # with the stale statistics of a queue table, the planner would scan all history
        conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off")
        return rows(conn, "report_ended", values)


def counted_runs(conn: Connection[Any], from_hour: datetime, to_hour: datetime) -> int:
    """Return how many runs were counted that ended within these full hours."""
    (found,) = rows(conn, "report_counted_runs", {"from_hour": from_hour, "to_hour": to_hour})
    return int(found["runs"])


def counted_by_job(conn: Connection[Any], from_hour: datetime, until: datetime) -> list[Row]:
    """Return what was counted of the runs of these hours, by job and state: `report_counted` in sql/charts.sql."""
    return rows(conn, "report_counted", {"from_hour": from_hour, "until": until})


def known_tasks(conn: Connection[Any], task: str | None, most: int) -> list[Row]:
    """Return the newest release of each task, and of each offered task: `tasks_known` in sql/workers.sql."""
    return rows(conn, "tasks_known", {"task": task, "n": most})


def open_runs_of_tasks(conn: Connection[Any], task: str | None, most: int) -> list[Row]:
    """Count the open runs of a task, or of all, by state; at most `most` runs of each phase are read."""
    with conn.transaction():
        conn.execute("SET LOCAL enable_seqscan = off")  # an index of open runs answers it
        return rows(conn, "tasks_open_runs", {"task": task, "most": most})


def ended_runs_of_tasks(conn: Connection[Any], task: str | None) -> list[Row]:
    """Count the runs of a task, or of all, that ended within the last 24 hours, by state."""
    return rows(conn, "tasks_ended_lately", {"task": task})
