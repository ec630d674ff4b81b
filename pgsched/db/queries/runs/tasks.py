"""The rows of `tasks`: what each release of an app says of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from pgsched.db.connection.connect import Connection
from pgsched.db.rows import value
from pgsched.db.statements import sql


class Release(Protocol):
    """A task as an app of some release has it."""

    @property
    def task(self) -> str: ...
    @property
    def release(self) -> str: ...
    def as_json(self) -> Mapping[str, Any]:
        """With its `options` and its `schema`."""
        ...


def register(conn: Connection[Any], app: str, releases: Iterable[Release]) -> str | None:
    """Register the tasks of an app. Returns the role that the app belongs to, if it is not this one's: then nothing is
    registered."""
    given = Jsonb([release.as_json() for release in releases])
    owner = value(conn, "task_register", {"app": app, "tasks": given})
    return None if owner is None else str(owner)


async def standing(conn: AsyncConnection[Any], app: str, task: str, release: str) -> str | None:
    """How a release of a task stands: newest, older or alone (see the statement); None: it is not registered."""
    found = await (await conn.execute(sql("task_standing"), {"app": app, "task": task, "release": release})).fetchone()
    return None if found is None else str(found[0])
