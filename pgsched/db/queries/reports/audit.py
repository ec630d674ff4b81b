"""The audit log: what people changed.

Invariant: the database writes an entry in the transaction of the change. Here entries are only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows

KINDS = (
    "job",
    "run",
    "backfill",
    "queue",
    "limit",
    "pause",
    "retention",
    "worker",
    "alert",
    "key",
    "task",
    "lock",
    "names",
    "database",
    "calendar",
    "file",
)


def entries(
    conn: Connection[Any],
    what: str | None,
    name: str | None,
    who: str | None,
    since: datetime | timedelta | None,
    before_id: int | None,
    limit: int,
) -> list[Row]:
    """Return the newest changes, newest first: `audit_list` in sql/audit.sql.

    `since`: an instant, or how long ago; `before_id`: only older entries. None: any.
    """
    wanted = {"what": what, "name": name, "who": who, **time_of(since), "before_id": before_id, "n": limit}
    return rows(conn, "audit_list", wanted)


def time_of(since: datetime | timedelta | None) -> dict[str, Any]:
    """Return `since` as parameters: an instant, or an age that the database subtracts from its clock."""
    ago = isinstance(since, timedelta)
    return {"since": None if ago else since, "ago": since if ago else None}


def jobs_known(conn: Connection[Any], names: Sequence[str], ids: Sequence[int]) -> dict[int, str]:
    """Return the names of the existing jobs that have one of these names or ids, by id."""
    return {row["id"]: row["name"] for row in rows(conn, "jobs_known", {"names": list(names), "ids": list(ids)})}
