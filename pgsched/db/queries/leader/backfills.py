"""The leader's work on backfills and on slots that were passed over, in its own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.arrays import literal
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, value
from pgsched.db.statements import sql


def open_backfills(conn: Connection[Any], n: int, look: int, after: int, aside: Sequence[int]) -> list[Row]:
    """The next `n` open backfills behind the id `after` that can go on, of `look` that are read: backfill_open in
    sql/backfills.sql. Those set `aside` are left alone."""
    return fetch(conn, "backfill_open", {"n": n, "look": look, "after": after, "aside": literal(aside)})


def set_slots(conn: Connection[Any], backfill_id: int, slots: int) -> None:
    """Write down how many slots a backfill has."""
    conn.execute(sql("backfill_count"), {"id": backfill_id, "slots": slots})


def insert_runs(conn: Connection[Any], wanted: Row, slots: Sequence[datetime]) -> int:
    """Make the runs of these slots of a backfill; returns how many."""
    return len(fetch(conn, "backfill_insert", values_of(wanted) | {"slots": list(slots)})) if slots else 0


def rerun(conn: Connection[Any], wanted: Row, ids: Sequence[int | None]) -> int:
    """Revive these runs for a backfill; returns how many."""
    return len(fetch(conn, "backfill_rerun", values_of(wanted) | {"ids": list(ids)})) if ids else 0


def values_of(wanted: Row) -> dict[str, Any]:
    """What runs get of their backfill."""
    return {name: wanted[name] for name in ("id", "job_id", "priority")}


def advance(
    conn: Connection[Any], backfill_id: int, cursor_at: datetime | None, considered: int, started: int,
    finished: bool, error: str | None,
) -> None:  # fmt: skip
    """Write down how far a backfill is."""
    values = {"id": backfill_id, "cursor_at": cursor_at, "considered": considered, "started": started,
              "finished": finished, "error": error}  # fmt: skip
    conn.execute(sql("backfill_advance"), values)


def take_passed_over(conn: Connection[Any], n: int, aside: Sequence[int]) -> list[Row]:
    """Take the next stretches of slots that edits passed over; those set `aside` stay."""
    return fetch(conn, "passed_over_take", {"n": n, "aside": literal(aside)})


def first_passed_over(conn: Connection[Any], aside: Sequence[int]) -> int | None:
    """The stretch that `take_passed_over` would begin with."""
    found: int | None = value(conn, "passed_over_first", {"aside": literal(aside)})
    return found
