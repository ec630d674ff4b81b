"""What people changed. The rule: the database writes it, in the transaction of the change; here it is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows

KINDS = ("job", "run", "backfill", "queue", "limit", "pause", "retention", "worker", "alert", "key", "task")


def entries(
    conn: Connection[Any],
    what: str | None,
    name: str | None,
    who: str | None,
    since: datetime | timedelta | None,
    before_id: int | None,
    limit: int,
) -> list[Row]:
    """The newest changes first: audit_list in sql/audit.sql. `since`: an instant, or how long ago."""
    wanted = {"what": what, "name": name, "who": who, **time_of(since), "before_id": before_id, "n": limit}
    return rows(conn, "audit_list", wanted)


def time_of(since: datetime | timedelta | None) -> dict[str, Any]:
    """An instant, or an age, which is the database's to subtract."""
    ago = isinstance(since, timedelta)
    return {"since": None if ago else since, "ago": since if ago else None}


def jobs_known(conn: Connection[Any], names: Sequence[str], ids: Sequence[int]) -> dict[int, str]:
    """The names of jobs that exist, by their ids: those with one of these names or ids."""
    return {row["id"]: row["name"] for row in rows(conn, "jobs_known", {"names": list(names), "ids": list(ids)})}
