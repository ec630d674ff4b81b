"""The leader's part of backfills (make and revive their runs), and the stretches of slots that edits passed over.

Each call is part of the leader's transaction. `wanted` is the backfill's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.arrays import literal
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, value
from pgsched.db.statements import sql


def open_backfills(conn: Connection[Any], n: int, look: int, after: int, excluded_ids: Sequence[int]) -> list[Row]:
    """Lock and return the next `n` open backfills that can go on: `backfill_open` in sql/backfills.sql.

    Reads `look` backfills behind the id `after`, and leaves out the ids in `excluded_ids`.
    """
    return fetch(conn, "backfill_open", {"n": n, "look": look, "after": after, "aside": literal(excluded_ids)})


def set_slots(conn: Connection[Any], backfill_id: int, slots: int) -> None:
    """Store how many slots a backfill has."""
    conn.execute(sql("backfill_count"), {"id": backfill_id, "slots": slots})


def insert_runs(
    conn: Connection[Any], backfill: Row, slots: Sequence[datetime], starts: Sequence[datetime | None],
    nominals: Sequence[datetime | None],
) -> int:  # fmt: skip
    """Insert the runs of these slots of a backfill; return how many are new.

    `starts`: the slot before each; `nominals`: where the schedule has each one that a calendar has shifted.
    """
    values = {"slots": list(slots), "starts": list(starts), "nominals": list(nominals)}
    return len(fetch(conn, "backfill_insert", values_of(backfill) | values)) if slots else 0


def rerun(conn: Connection[Any], backfill: Row, ids: Sequence[int | None], starts: Sequence[datetime | None]) -> int:
    """Revive these ended runs for a backfill; return how many were revived. `starts`: the slot before that of each."""
    values = {"ids": list(ids), "starts": list(starts)}
    return len(fetch(conn, "backfill_rerun", values_of(backfill) | values)) if ids else 0


def values_of(backfill: Row) -> dict[str, Any]:
    """Return the values that runs get from their backfill."""
    return {name: backfill[name] for name in ("id", "job_id", "priority")}


def advance(
    conn: Connection[Any], backfill_id: int, cursor_at: datetime | None, considered: int, started: int,
    finished: bool, error: str | None,
) -> None:  # fmt: skip
    """Record how far a backfill is.

    `cursor_at`: the slot to go on from, None: unchanged
    `considered`, `started`: slots that were decided and runs that were started since the last call
    `error`: why the backfill failed, None: it did not
    """
    values = {"id": backfill_id, "cursor_at": cursor_at, "considered": considered, "started": started,
              "finished": finished, "error": error}  # fmt: skip
    conn.execute(sql("backfill_advance"), values)


def take_passed_over(conn: Connection[Any], n: int, excluded_ids: Sequence[int]) -> list[Row]:
    """Take out the next `n` stretches of slots that edits passed over, except the ids in `excluded_ids`."""
    return fetch(conn, "passed_over_take", {"n": n, "aside": literal(excluded_ids)})


def first_passed_over(conn: Connection[Any], excluded_ids: Sequence[int]) -> int | None:
    """Return the id of the stretch with which `take_passed_over` would begin, or None."""
    found: int | None = value(conn, "passed_over_first", {"aside": literal(excluded_ids)})
    return found
