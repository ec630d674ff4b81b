"""Changed calendars: the leader plans the jobs again whose slots they shift. Statements in sql/jobs.sql."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, fetch_as
from pgsched.db.statements import sql


class ChangedCalendar(NamedTuple):
    """A calendar whose jobs are to be planned again, and its version."""

    name: str
    version: str


def list_changed(conn: Connection[Any], n: int) -> list[ChangedCalendar]:
    """Return calendars whose jobs are to be planned again."""
    return fetch_as(conn, ChangedCalendar, "calendars_changed", {"n": n})


def replan_jobs(
    conn: Connection[Any], name: str, after: int, n: int, only: Sequence[int] | None = None
) -> dict[int, bool]:
    """Let the next `n` jobs of a calendar be planned again; return their ids, and whether each will be.

    `after`: their ids are larger
    `only`: of these jobs alone; None: of all
    """
    values = {"name": name, "after": after, "n": n, "ids": None if only is None else plain(only)}
    return {row["id"]: row["again"] for row in fetch(conn, "calendars_replan", values)}


def mark_replanned(conn: Connection[Any], calendar: ChangedCalendar) -> None:
    """Note that the jobs of a calendar are planned again, unless it has changed meanwhile."""
    conn.execute(sql("calendars_replanned"), calendar._asdict())
