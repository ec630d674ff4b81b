"""How it has been going lately: counts and figures for charts. Every read is bounded."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import one, rows


def finished_by_stretch(conn: Connection[Any], width_s: float, count: int, n: int, most: int) -> list[Row]:
    """The last `count` stretches of `width_s` seconds, oldest first: runs_finished_by_stretch in sql/charts.sql."""
    return rows(conn, "runs_finished_by_stretch", {"width_s": width_s, "count": count, "n": n, "most": most})


def open_runs(conn: Connection[Any], n: int) -> Row:
    """How many runs have not ended, by state; of each at most `n` are counted."""
    found = one(conn, "runs_open_counted", {"n": n})
    assert found is not None
    return found


def failed_runs(conn: Connection[Any], n: int) -> list[Row]:
    """The newest runs that ended badly."""
    return rows(conn, "runs_failed_newest", {"n": n})


def alive_workers(conn: Connection[Any]) -> list[Row]:
    """The workers that are alive, also those that drain."""
    return rows(conn, "workers_alive_draining")


def gone_workers(conn: Connection[Any], n: int) -> list[Row]:
    """The workers that have gone within the last hour."""
    return rows(conn, "workers_gone", {"n": n})
