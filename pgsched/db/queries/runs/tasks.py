"""The rows of `tasks`: what each release of an app declares of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, first_row, rows, value
from pgsched.db.statements import sql


class Release(Protocol):
    """A task as one release of an app has it."""

    @property
    def task(self) -> str:
        """Return the name of the task."""

    @property
    def release(self) -> str:
        """Return the name of this release of the task."""

    def as_json(self) -> Mapping[str, Any]:
        """Return task and release with the `options` and the `schema` of the task."""
        ...


def register(conn: Connection[Any], app: str, releases: Iterable[Release]) -> str | None:
    """Register the tasks of an app, unless the app belongs to another role; return that role, else None."""
    given = Jsonb([release.as_json() for release in releases])
    owner = value(conn, "task_register", {"app": app, "tasks": given})
    return None if owner is None else str(owner)


def find_misfit(conn: Connection[Any], task: str, args: str) -> str | None:
    """Return why these arguments, as JSON, do not fit the newest schema of a task; None: they fit, or it is not known.

    Raises InputError for a text that is not JSON.
    """
    row = first_row(conn, "task_check_args", {"task": task, "args": args})
    return str(row["problem"]) if row is not None and row["fits"] is False else None


def declare_limits(conn: Connection[Any], app: str, *, update: bool) -> dict[str, str]:
    """Make the limits of an app's tasks what the newest releases declare; return what was done with each, by name.

    The results are created, updated and removed. `update`: False: only make the limits that are missing.
    """
    found = fetch(conn, "task_limits", {"app": app, "update": update})
    return {row["name"]: row["done"] for row in found}


def find_schema(conn: Connection[Any], task: str) -> Any:
    """Return the JSON Schema of a task's arguments, as its newest release has registered it; None if there is none."""
    return value(conn, "task_schema", {"task": task}) or None


def list_names(conn: Connection[Any]) -> list[str]:
    """Return the names of the tasks that workers have registered or offer, at most 1,000."""
    return [row["name"] for row in rows(conn, "task_names")]


async def release_standing(conn: AsyncConnection[Any], app: str, task: str, release: str) -> str | None:
    """Return how a release of a task stands: newest, older or alone; None: it is not registered.

    older: a live worker has the newest release; alone: no live worker has it. See `task_standing` in sql/workers.sql.
    """
    found = await (await conn.execute(sql("task_standing"), {"app": app, "task": task, "release": release})).fetchone()
    return None if found is None else str(found[0])
