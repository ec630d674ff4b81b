"""The figures that outlive the rows: writing them (the leader), and reading them (charts). See sql/rollup*.sql.

The rule: an ending is counted once, in the transaction that moves the mark behind it, and only when nobody can still
commit an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.arrays import literal
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, rows
from pgsched.db.statements import sql

# Of many hours some are read, but every hour of a day and of a week is among them: 11 divides neither.
MOST, EVERY = 3000, 11


@dataclass(frozen=True, slots=True)
class Look:
    """The database's time, the transactions that were writing runs then, and whether there is anything to count."""

    now: datetime
    writers: frozenset[str]
    some: bool


def look(conn: Connection[Any]) -> Look:
    """See rollup_look in sql/rollups.sql."""
    (row,) = fetch(conn, sql("rollup_look"))
    return Look(row["now"], frozenset(row["writers"]), row["some"])


def count(conn: Connection[Any], safe: datetime, n: int, aside: Sequence[int] = ()) -> int:
    """Count about `n` endings behind the mark, none after `safe`; returns how many. In the caller's transaction. Runs
    that are set `aside` are not counted."""
    (mark,) = fetch(conn, sql("rollup_lock"))
    values = {"after": mark["counted_until"], "aside": literal(aside)}
    (reach,) = fetch(conn, "rollup_reach", values | {"safe": safe, "n": n})
    until = reach["until_at"] if reach["found"] >= n else safe
    (row,) = fetch(conn, "rollup", values | {"until": until})
    return int(row["counted"])


def first(conn: Connection[Any], safe: datetime, aside: Sequence[int]) -> int | None:
    """The run that `count` would begin with."""
    (mark,) = fetch(conn, sql("rollup_lock"))
    values = {"after": mark["counted_until"], "aside": literal(aside), "safe": safe, "n": 1}
    (reach,) = fetch(conn, "rollup_reach", values)
    return None if reach["last_id"] is None else int(reach["last_id"])


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of time of `width_s` seconds from `from_at` to `until_at`, made of minutes or hours. `job_id` 0: of
    all."""

    unit: str
    from_at: datetime
    until_at: datetime
    width_s: float
    job_id: int = 0


def read(conn: Connection[Any], asked: Stretches) -> list[Row]:
    """What was counted, stretch by stretch: how long runs took of one job, how long they waited of all. See
    rollup_stretches in sql/rollups.sql."""
    width = asked.unit if asked.job_id else f"{asked.unit} of all"
    values = {"width": width, "most": MOST, "every": EVERY, "durations": asked.job_id != 0}
    return rows(conn, "rollup_stretches", asdict(asked) | values)
