"""The rows of `tasks`: what each release of an app declares of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from pgsched.db.connection.connect import Connection
from pgsched.db.rows import value
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


async def release_standing(conn: AsyncConnection[Any], app: str, task: str, release: str) -> str | None:
    """Return how a release of a task stands: newest, older or alone; None: it is not registered.

    older: a live worker has the newest release; alone: no live worker has it. See `task_standing` in sql/workers.sql.
    """
    found = await (await conn.execute(sql("task_standing"), {"app": app, "task": task, "release": release})).fetchone()
    return None if found is None else str(found[0])
