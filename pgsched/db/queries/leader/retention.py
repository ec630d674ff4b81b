"""How long ended runs are kept, and what takes them away. Each call is a part of the caller's transaction.

The rule: a row goes only when its ending is counted (rollups.py beside this), by the settings that are in force at
that moment, and with everything that says something of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql as composing
from psycopg.types.json import Jsonb

from pgsched.core.model import Row
from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import fetch, one, rows
from pgsched.db.statements import sql

BEGINNING = "-infinity"
WORKERS_KEPT_S = 3600.0  # the row of a worker, after its last sign of life
SETTINGS = ("keep", "archive", "keep_minutes", "keep_hours", "keep_audit")


@dataclass(frozen=True, slots=True)
class Rules:
    """What is set: every length of time that some runs are kept for, in seconds, the shortest first; another `version`
    when a setting has changed. `counted_until`: text of an instant, what ended later stays."""

    keeps_s: tuple[float, ...]
    version: str
    archive: bool
    now: datetime
    counted_until: str


@dataclass(frozen=True, slots=True)
class Picked:
    """Locked runs that may go, as the text of an array; how many those are; how many were read for that; when the last
    of those had ended, and its number."""

    ids: str
    locked: int
    read: int
    last_at: datetime | None
    last_id: int | None

    @property
    def numbers(self) -> list[int]:
        """The runs."""
        return [int(one) for one in self.ids.strip("{}").split(",") if one]


def rules(conn: Connection[Any]) -> Rules:
    """The settings as they are."""
    (row,) = fetch(conn, "retention_rules")
    return Rules(tuple(row["keeps_s"]), row["version"], row["archive"], row["now"], row["counted_until"] or BEGINNING)


def pick(
    conn: Connection[Any],
    keep_s: float,
    after: str,
    until: datetime,
    n: int,
    aside: Sequence[int] = (),
    *,
    after_id: int = 0,
    durable: bool = True,
) -> Picked:
    """Read the next `n` ended runs from `after` (text of an instant; behind `after_id` of those that ended then) to
    `until`; lock those kept at most `keep_s`, but for those set `aside`."""
    values = {
        "keep_s": keep_s,
        "after": after,
        "after_id": after_id,
        "until": until,
        "n": n,
        "durable": durable,
        "aside": plain(aside),
    }
    (row,) = fetch(conn, "prune_pick", values)
    return Picked(**row)


def delete(conn: Connection[Any], ids: str, *, archive: bool = False, tell: bool = False) -> tuple[int, list[Row]]:
    """Delete locked runs; how many went, and if `tell` (run) of each: the whole of it."""
    gone, *told = fetch(conn, sql("prune_delete"), {"ids": ids, "archive": archive, "tell": tell})
    return int(gone["gone"]), told


def tidy(conn: Connection[Any], keep_s: float, n: int, keep_workers_s: float = WORKERS_KEPT_S) -> int:
    """Drop what else has had its time: keys, backfills, workers, jobs that ran once, figures; returns how many keys or
    workers, whichever were more."""
    keys = conn.execute(sql("prune_keys"), {"n": n}).fetchone()
    conn.execute(sql("prune_backfills"), {"keep_s": keep_s, "n": n})
    workers = conn.execute(sql("prune_workers"), {"keep_s": keep_workers_s, "n": n}).fetchone()
    conn.execute(sql("prune_jobs"), {"n": n})
    conn.execute(sql("rollup_prune"), {"n": n})
    conn.execute(sql("prune_audit"), {"n": n})
    return max(int(row[0]) for row in (keys, workers) if row is not None)


def exists(conn: Connection[Any], run_id: int) -> bool:
    """Is the run still there?"""
    return bool(fetch(conn, "run_present", {"ids": plain([run_id])}))


def would_go(conn: Connection[Any]) -> list[Row]:
    """How many runs the settings keep no longer: (queue, state, runs, oldest_at)."""
    return rows(conn, "prune_count", {"until": rules(conn).now})


def settings(conn: Connection[Any]) -> Row:
    """What holds for everything, and `jobs` and `queues`: those with settings of their own (name, keep)."""
    found = one(conn, "retention_show")
    assert found is not None
    return found


def change(conn: Connection[Any], values: dict[str, Any]) -> Row:
    """Set what holds for everything (SETTINGS), and return it."""
    given = {name: Jsonb(value) if name == "keep" else value for name, value in values.items()}
    parts = [composing.SQL("{} = {}").format(composing.Identifier(n), composing.Placeholder(n)) for n in given]
    text = composing.SQL("UPDATE pgsched.retention SET {} RETURNING name").format(composing.SQL(", ").join(parts))
    rows(conn, text, given)
    return settings(conn)
