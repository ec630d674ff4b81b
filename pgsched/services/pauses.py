"""Let nothing start, while what runs goes on: pauses of everything, of a queue or of a task, and draining a worker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pgsched.core import policies
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import queues
from pgsched.db.queries.reports import name_hints
from pgsched.db.queries.reports.live import database_now
from pgsched.db.queries.runs import workers
from pgsched.errors import InputError


@dataclass(frozen=True, slots=True)
class Target:
    """What a pause is about: `what` is all, queue or task, and all has no name."""

    what: str
    name: str = ""

    def __post_init__(self) -> None:
        if self.what not in policies.PAUSED or (self.what != "all") != bool(self.name.strip()):
            raise InputError("name: a queue and a task have one, everything has none", "name")

    @property
    def words(self) -> str:
        """`everything`, `queue mail`."""
        return queues.said(self.what, self.name)


@dataclass(frozen=True, slots=True)
class Ended:
    """A pause that is over, and when that was."""

    row: Row
    at: datetime


def pause(
    conn: Connection[Any],
    target: Target,
    reason: str | None = None,
    by: str | None = None,
    lasts: timedelta | None = None,
) -> Row:
    """Let nothing of the target start, for so long or until it is resumed. `by`: None is the session's user."""
    return queues.pause(conn, target.what, target.name, reason, by, lasts)


def unknown(conn: Connection[Any], target: Target) -> str | None:
    """A note about a queue or task that nothing in the database names; None if something does."""
    return None if target.what == "all" else name_hints.unknown(conn, target.what, target.name)


def resume(conn: Connection[Any], target: Target) -> Ended:
    """End a pause. Raises NotFound."""
    return Ended(queues.resume(conn, target.what, target.name), database_now(conn))


def drain(conn: Connection[Any], worker_id: int, by: str | None = None) -> Row:
    """Let a worker take no more and end; returns its row. Raises NotFound."""
    return workers.drain(conn, worker_id, by)
