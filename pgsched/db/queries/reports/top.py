"""What the pages of `pgsched top` list."""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows


def running_longest(conn: Connection[Any], n: int, deep: int, fronts: int) -> list[Row]:
    """The runs that have been running longest: runs_running_longest in sql/top.sql."""
    return rows(conn, "runs_running_longest", {"n": n, "deep": deep, "fronts": fronts})


def queues(conn: Connection[Any]) -> list[Row]:
    """The queues that have settings or a pause."""
    return rows(conn, "queues_set_or_paused")


def jobs(conn: Connection[Any], n: int, find: str | None) -> list[Row]:
    """The jobs that matter most now, or those with this text in their names."""
    return rows(conn, "jobs_of_interest", {"n": n, "find": find})


def failing(conn: Connection[Any], n: int, deep: int) -> list[Row]:
    """The runs that have failed and are tried again; `deep` rows are read."""
    return rows(conn, "runs_failing", {"n": n, "deep": deep})


def log_end(conn: Connection[Any], run_id: int, n: int, characters: int) -> list[Row]:
    """The end of the output of a run."""
    return rows(conn, "run_log_end", {"id": run_id, "n": n, "characters": characters})


def runs_of_queue(conn: Connection[Any], queue: str | int | None, n: int) -> list[Row]:
    """The runs of a queue that come next or run."""
    return rows(conn, "runs_of_queue", {"queue": queue, "n": n})
