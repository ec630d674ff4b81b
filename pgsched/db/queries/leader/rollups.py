"""Rollups: counts and durations of ended runs, which outlive the runs. The leader writes them, charts read them.

The statements are in sql/rollups.sql. Invariant: the end of a run is counted once, in the transaction that moves the
mark behind it. It is counted only when no transaction can still commit an earlier end.
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

# Of more than MOST minutes or hours one of EVERY is read. Every hour of a day and of a week is still among them: 11
# divides neither 24 nor 168.
MOST, EVERY = 3000, 11


@dataclass(frozen=True, slots=True)
class Look:
    """What there is to count.

    `now`: the database's time; `writers`: the transactions that were writing runs then; `some`: there are ends to
      count.
    """

    now: datetime
    writers: frozenset[str]
    some: bool


def find_uncounted(conn: Connection[Any]) -> Look:
    """Return what there is to count: `rollup_look` in sql/rollups.sql."""
    (row,) = fetch(conn, sql("rollup_look"))
    return Look(row["now"], frozenset(row["writers"]), row["some"])


def count(conn: Connection[Any], safe: datetime, n: int, excluded_ids: Sequence[int] = ()) -> int:
    """Count about `n` ends behind the mark, none later than `safe`, in the caller's transaction; return how many.

    `excluded_ids`: ids of runs that are not counted.
    """
    (mark,) = fetch(conn, sql("rollup_lock"))
    values = {"after": mark["counted_until"], "aside": literal(excluded_ids)}
    (reach,) = fetch(conn, "rollup_reach", values | {"safe": safe, "n": n})
    until = reach["until_at"] if reach["found"] >= n else safe
    (row,) = fetch(conn, "rollup", values | {"until": until})
    return int(row["counted"])


def first_uncounted(conn: Connection[Any], safe: datetime, excluded_ids: Sequence[int]) -> int | None:
    """Return the id of the run with which `count` would begin, or None."""
    (mark,) = fetch(conn, sql("rollup_lock"))
    values = {"after": mark["counted_until"], "aside": literal(excluded_ids), "safe": safe, "n": 1}
    (reach,) = fetch(conn, "rollup_reach", values)
    return None if reach["last_id"] is None else int(reach["last_id"])


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of time of equal width, made of rollups of minutes or hours.

    `unit`: minute or hour
    `from_at`, `until_at`: where the first stretch begins, and where the last one ends
    `width_s`: the width of one stretch, in seconds
    `job_id`: 0: all jobs
    """

    unit: str
    from_at: datetime
    until_at: datetime
    width_s: float
    job_id: int = 0


def read_stretches(conn: Connection[Any], asked: Stretches) -> list[Row]:
    """Return what was counted in each stretch: `rollup_stretches` in sql/rollups.sql.

    Of one job how long its runs took; of all jobs how long runs waited.
    """
    width = asked.unit if asked.job_id else f"{asked.unit} of all"
    values = {"width": width, "most": MOST, "every": EVERY, "durations": asked.job_id != 0}
    return rows(conn, "rollup_stretches", asdict(asked) | values)
