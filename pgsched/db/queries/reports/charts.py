"""Counts and times of recent runs and workers, for charts and pages. Each query reads a bounded number of rows."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import first_row, rows


def finished_by_stretch(conn: Connection[Any], width_s: float, count: int, n: int, most: int) -> list[Row]:
    """Return figures of ended runs for the last `count` stretches of `width_s` seconds, oldest first.

    `runs_finished_by_stretch` in sql/charts.sql: of each stretch at most `n` runs are read, and `most` are counted.
    """
    return rows(conn, "runs_finished_by_stretch", {"width_s": width_s, "count": count, "n": n, "most": most})


def count_open_runs(conn: Connection[Any], n: int) -> Row:
    """Count the runs that have not ended, by state; at most `n` of each phase."""
    found = first_row(conn, "runs_open_counted", {"n": n})
    assert found is not None
    return found


def failed_runs(conn: Connection[Any], n: int) -> list[Row]:
    """Return the `n` newest runs that ended badly."""
    return rows(conn, "runs_failed_newest", {"n": n})


def alive_workers(conn: Connection[Any]) -> list[Row]:
    """Return the workers that are alive, including those that drain."""
    return rows(conn, "workers_alive_draining")


def gone_workers(conn: Connection[Any], n: int) -> list[Row]:
    """Return the `n` newest workers that have gone within the last hour."""
    return rows(conn, "workers_gone", {"n": n})
