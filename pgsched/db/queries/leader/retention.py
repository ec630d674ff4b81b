"""Retention: for how long ended runs are kept, and the statements that delete them.

Each call is part of the caller's transaction. Invariant: a run is deleted only after its end was counted (`rollups`).
The settings in force at that moment decide. All rows that belong to the run go with it.
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
from pgsched.db.rows import fetch, first_row, rows
from pgsched.db.statements import sql

BEGINNING = "-infinity"
WORKERS_KEPT_S = 3600.0  # for how long the row of a worker stays after its last sign of life
SETTINGS = ("keep", "archive", "keep_minutes", "keep_hours", "keep_audit")


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of retention.

    `keeps_s`: every length of time for which some runs are kept, in seconds, ascending
    `version`: changes when a setting changes
    `archive`: deleted runs are copied to `archived_runs`
    `now`: the database's time
    `counted_until`: an instant as text; runs that ended later stay
    """

    keeps_s: tuple[float, ...]
    version: str
    archive: bool
    now: datetime
    counted_until: str


@dataclass(frozen=True, slots=True)
class LockedRuns:
    """Locked runs that may be deleted.

    `ids`: the runs, as the text of an array
    `locked`: how many they are
    `read`: how many runs were read to find them
    `last_at`, `last_id`: the end and the id of the last run that was read; of `lock_own` the end of its own retention
    """

    ids: str
    locked: int
    read: int
    last_at: datetime | None
    last_id: int | None

    @property
    def numbers(self) -> list[int]:
        """Return the ids as a list."""
        return [int(one) for one in self.ids.strip("{}").split(",") if one]


def rules(conn: Connection[Any]) -> Rules:
    """Return the settings in force."""
    (row,) = fetch(conn, "retention_rules")
    return Rules(tuple(row["keeps_s"]), row["version"], row["archive"], row["now"], row["counted_until"] or BEGINNING)


def lock_expired(
    conn: Connection[Any],
    keep_s: float,
    after: str,
    until: datetime,
    n: int,
    excluded_ids: Sequence[int] = (),
    *,
    after_id: int = 0,
    durable: bool = True,
) -> LockedRuns:
    """Read the next `n` ended runs, and lock those that may be deleted.

    `keep_s`: runs that are kept for at most this many seconds may be deleted
    `after`, `after_id`: begin at this instant (as text), behind this id of the runs that ended then
    `until`: read runs that ended by then
    `excluded_ids`: ids that are not locked
    `durable`: False: the commit need not wait for the disk; runs that a crash of the server restores are deleted again
    """
    values = {
        "keep_s": keep_s,
        "after": after,
        "after_id": after_id,
        "until": until,
        "n": n,
        "durable": durable,
        "aside": plain(excluded_ids),
    }
    (row,) = fetch(conn, "prune_pick", values)
    return LockedRuns(**row)


def lock_own(
    conn: Connection[Any],
    after: str,
    until: datetime,
    n: int,
    excluded_ids: Sequence[int] = (),
    *,
    after_id: int = 0,
    durable: bool = True,
) -> LockedRuns:
    """Read the next `n` ended runs whose own retention is over, and lock those that may be deleted.

    `after`, `after_id`: begin at this instant (as text), behind this id of the runs whose time was over then
    `until`: read runs whose time was over by then; `excluded_ids`, `durable`: see `lock_expired`
    """
    values = {"after": after, "after_id": after_id, "until": until, "n": n, "durable": durable,
              "aside": plain(excluded_ids)}  # fmt: skip
    (row,) = fetch(conn, "prune_pick_own", values)
    return LockedRuns(**row)


def delete_runs(
    conn: Connection[Any], ids: str, *, archive: bool = False, return_rows: bool = False
) -> tuple[int, list[Row]]:
    """Delete locked runs; return how many, and with `return_rows` the whole row of each as JSON text (`run`).

    `archive`: copy them to `archived_runs` first.
    """
    count_row, *deleted_rows = fetch(conn, sql("prune_delete"), {"ids": ids, "archive": archive, "tell": return_rows})
    return int(count_row["gone"]), deleted_rows


def delete_other_rows(conn: Connection[Any], keep_s: float, n: int, keep_workers_s: float = WORKERS_KEPT_S) -> int:
    """Delete other rows whose time is over; return the number of keys or of workers, whichever is more.

    These rows are keys, backfills, workers, jobs that ran once, rollups and audit entries, at most `n` of each.

    `keep_s`, `keep_workers_s`: for how long ended backfills and lost workers are kept, in seconds
    """
    keys = conn.execute(sql("prune_keys"), {"n": n}).fetchone()
    conn.execute(sql("prune_backfills"), {"keep_s": keep_s, "n": n})
    workers = conn.execute(sql("prune_workers"), {"keep_s": keep_workers_s, "n": n}).fetchone()
    conn.execute(sql("prune_jobs"), {"n": n})
    conn.execute(sql("rollup_prune"), {"n": n})
    conn.execute(sql("prune_audit"), {"n": n})
    return max(int(row[0]) for row in (keys, workers) if row is not None)


def exists(conn: Connection[Any], run_id: int) -> bool:
    """Check whether the run still exists."""
    return bool(fetch(conn, "run_present", {"ids": plain([run_id])}))


def count_expired(conn: Connection[Any]) -> list[Row]:
    """Count the runs that the settings no longer keep: (queue, state, runs, oldest_at)."""
    return rows(conn, "prune_count", {"until": rules(conn).now})


def settings(conn: Connection[Any]) -> Row:
    """Return the settings that hold for everything, and the `jobs` and `queues` with their own (name, keep)."""
    found = first_row(conn, "retention_show")
    assert found is not None
    return found


def change_settings(conn: Connection[Any], values: dict[str, Any]) -> Row:
    """Change settings that hold for everything (the columns in SETTINGS); return all settings."""
    given = {name: Jsonb(value) if name == "keep" else value for name, value in values.items()}
    parts = [composing.SQL("{} = {}").format(composing.Identifier(n), composing.Placeholder(n)) for n in given]
    text = composing.SQL("UPDATE pgsched.retention SET {} RETURNING name").format(composing.SQL(", ").join(parts))
    rows(conn, text, given)
    return settings(conn)
