"""The figures that outlive the rows: writing them (the leader), and reading them (charts). See sql/rollup*.sql.

The rule: an ending is counted once, in the transaction that moves the mark behind it, and only when nobody can still
commit an earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.db.connect import Connection
from pgsched.db.query import Row, fetch, rows
from pgsched.db.statements import sql


@dataclass(frozen=True, slots=True)
class Look:
    """The database's time, the transactions that were writing runs then, and whether there is anything to count."""

    now: datetime
    writers: frozenset[str]
    some: bool


def look(conn: Connection[Any]) -> Look:
    """See sql/rollup_look.sql."""
    (row,) = fetch(conn, sql("rollup_look"))
    return Look(row["now"], frozenset(row["writers"]), row["some"])


def count(conn: Connection[Any], safe: datetime, n: int) -> int:
    """Count about `n` endings behind the mark, none after `safe`; returns how many. In the caller's transaction."""
    (mark,) = fetch(conn, sql("rollup_lock"))
    after = mark["counted_until"]
    (reach,) = fetch(conn, "rollup_reach", {"after": after, "safe": safe, "n": n})
    until = reach["until_at"] if reach["found"] >= n else safe
    (row,) = fetch(conn, "rollup", {"after": after, "until": until})
    return int(row["counted"])


def read(conn: Connection[Any], width: str, from_at: datetime, job_id: int = 0) -> list[Row]:
    """The figures since then, `width`: minute or hour, of all or of a job (by hour alone), see sql/rollup_read.sql."""
    values = {"width": width if job_id else f"{width} of all", "from_at": from_at, "job_id": job_id}
    return rows(conn, "rollup_read", values)
