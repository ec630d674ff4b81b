"""Pauses of everything, of a queue or of a task, and draining of a worker; running attempts go on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pgsched.core import policies
from pgsched.core.model import Row
from pgsched.core.text import did_you_mean
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import queues
from pgsched.db.queries.reports import name_hints
from pgsched.db.queries.reports.live import database_now
from pgsched.db.queries.runs import workers
from pgsched.errors import InputError, NotFound


@dataclass(frozen=True, slots=True)
class Target:
    """The object of a pause. `what`: all, queue or task. `name`: empty for all."""

    what: str
    name: str = ""

    def __post_init__(self) -> None:
        if self.what not in policies.PAUSED or (self.what != "all") != bool(self.name.strip()):
            raise InputError("name: a queue and a task have one, everything has none", "name")

    @property
    def words(self) -> str:
        """The target in words: `everything`, `queue mail`."""
        return queues.describe_pause(self.what, self.name)


@dataclass(frozen=True, slots=True)
class EndedPause:
    """A pause that was ended, and the instant of its end."""

    row: Row
    at: datetime


def pause(
    conn: Connection[Any],
    target: Target,
    reason: str | None = None,
    by: str | None = None,
    lasts: timedelta | None = None,
) -> Row:
    """Pause the target, for the time `lasts` or until it is resumed. `by`: None is the session's user."""
    return queues.pause(conn, target.what, target.name, reason, by, lasts)


def note_unknown_target(conn: Connection[Any], target: Target) -> str | None:
    """Return a note if nothing in the database names the queue or task, else None."""
    return None if target.what == "all" else name_hints.unknown(conn, target.what, target.name)


def resume(conn: Connection[Any], target: Target) -> EndedPause:
    """End a pause. Raises NotFound, with names that may have been meant."""
    try:
        row = queues.resume(conn, target.what, target.name)
    except NotFound as error:
        known = name_hints.known_names(conn, target.what) if target.name else ()
        raise NotFound(f"{error}{did_you_mean(target.name, known)}") from None
    return EndedPause(row, database_now(conn))


def drain(conn: Connection[Any], worker_id: int, by: str | None = None) -> Row:
    """Make a worker take no more runs and end; return its row. Raises NotFound."""
    return workers.drain(conn, worker_id, by)
