"""Backfills: preview one, ask the leader for one, and end one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgsched.core.model import Row
from pgsched.core.planning.backfill import Choice
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import backfills
from pgsched.db.queries.jobs.backfills import Range, Request


@dataclass(frozen=True, slots=True)
class BackfillPreview:
    """A preview of a backfill: the range that is possible, and the decision for every slot in it."""

    range: Range
    choices: list[Choice]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Result of a cancel. `result`: `cancelled`, or `finished` for a backfill that had ended already."""

    id: int
    result: str

    @property
    def words(self) -> str:
        """The same as the end of a sentence about the backfill."""
        return "is cancelled" if self.result == "cancelled" else "had ended already"


def preview(conn: Connection[Any], job: str, request: Request) -> BackfillPreview:
    """Return every slot of a request with its decision as of now; nothing is written. Raises InputError."""
    return BackfillPreview(*backfills.preview_backfill(conn, job, request))


def start(conn: Connection[Any], job: str, request: Request) -> Row:
    """Ask the leader for a backfill; return it. Raises InputError."""
    return backfills.add_backfill(conn, job, request)


def cancel(conn: Connection[Any], backfill_id: int, reason: str | None = None) -> Cancelled:
    """End a backfill and its open runs. Raises NotFound."""
    return Cancelled(backfill_id, backfills.cancel(conn, backfill_id, reason))
