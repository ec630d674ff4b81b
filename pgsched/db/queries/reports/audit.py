"""What people changed. The rule: the database writes it, in the transaction of the change; here it is read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.rows import Row, rows
from pgsched.errors import InputError

KINDS = ("job", "run", "backfill", "queue", "limit", "pause", "retention", "worker", "alert", "key", "task")


def entries(
    conn: Connection[Any],
    what: str | None = None,
    name: str | None = None,
    *,
    who: str | None = None,
    since: datetime | timedelta | None = None,
    before_id: int | None = None,
    limit: int = 50,
) -> list[Row]:
    """The newest changes first (see audit_list in sql/audit.sql); `before_id` goes on where a page ended.

    `since`: an instant, or how long ago. Raises InputError.
    """
    if what is not None and what not in KINDS:
        raise InputError(f'what: "{what}" is not one of {", ".join(KINDS)}', "what")
    if not 1 <= limit <= 10_000:
        raise InputError(f"limit: {limit} is out of range 1-10000", "limit")
    wanted = {"what": what, "name": name, "who": who, **time_of(since), "before_id": before_id, "n": limit}
    return rows(conn, "audit_list", wanted)


def time_of(since: datetime | timedelta | None) -> dict[str, Any]:
    """An instant, or an age, which is the database's to subtract."""
    ago = isinstance(since, timedelta)
    return {"since": None if ago else since, "ago": since if ago else None}
