"""The tasks that are known: what their newest release declares, which workers offer them, and how their runs stand.

Invariant: the counts are bounded. Open runs are counted up to MOST_OPEN; ended runs come from the counted hours.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.core.text import did_you_mean
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import name_hints, summary
from pgsched.errors import NotFound, NotPermitted
from pgsched.services.task_schemas import Argument, list_arguments

MOST_OPEN = 50_000  # open runs of each phase that are read at most


@dataclass(frozen=True, slots=True)
class KnownTask:
    """A task of an app, in its newest release.

    `release`, `since`: the newest release and when it was registered first; None if it is only offered.
    `releases`: how many releases of it are registered.
    `options`: what its runs take, unless a call says otherwise.
    `schema`: its arguments as JSON Schema.
    `workers`: the live workers that offer it.
    `open`: its open runs by state. `ended`: its runs of the last 24 hours, in full hours, by state.
    """

    task: str
    app: str | None
    release: str | None
    since: datetime | None
    releases: int
    options: dict[str, Any]
    schema: dict[str, Any]
    workers: list[str]
    open: dict[str, int]
    ended: dict[str, int]

    @property
    def queue(self) -> str:
        """The queue in which its runs wait."""
        return str(self.options.get("queue", "default"))

    @property
    def arguments(self) -> list[Argument]:
        """Its arguments, with their types in words."""
        return list_arguments(self.schema)


def list_tasks(conn: Connection[Any], task: str | None = None, most: int = 10_000) -> list[KnownTask]:
    """Return the known tasks by name; of several apps that have the task, each."""
    counts: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: {"open": {}, "ended": {}})
    for row in summary.open_runs_of_tasks(conn, task, MOST_OPEN):
        counts[row["task"]]["open"][row["state"]] = row["runs"]
    for row in count_ended(conn, task):
        counts[row["task"]]["ended"][row["state"]] = int(row["runs"])
    return [
        KnownTask(
            row["task"], row["app"], row["release"], row["first_seen_at"], row["releases"], row["options"] or {},
            row["schema"] or {}, row["workers"], counts[row["task"]]["open"], counts[row["task"][:100]]["ended"],
        )
        for row in summary.known_tasks(conn, task, most)
    ]  # fmt: skip


def count_ended(conn: Connection[Any], task: str | None) -> list[Row]:
    """Return the counts of ended runs; none for a role that may not read all figures."""
    try:
        return summary.ended_runs_of_tasks(conn, task)
    except NotPermitted:
        return []


def show_task(conn: Connection[Any], task: str) -> list[KnownTask]:
    """Return a task, once for each app that has it. Raises NotFound, with names that may have been meant."""
    found = list_tasks(conn, task)
    if not found:
        hint = did_you_mean(task, name_hints.known_names(conn, "task"))
        raise NotFound(
            f'no app has registered task "{task}"{hint or "; `pgsched task list` shows those that are known"}'
        )
    return found
