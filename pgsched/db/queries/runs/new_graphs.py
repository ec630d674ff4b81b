"""Make graphs of runs that wait for each other.

Invariant: all runs of a graph and all their edges are made, or nothing. The caller's transaction stays usable.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import dict_row

from pgsched.db.callers.foreign import ForeignConnection
from pgsched.db.connection.connect import AsyncConnection, Connection
from pgsched.db.connection.transaction_pooling import cursor_on, cursor_on_async
from pgsched.db.queries.runs.dependencies import arrays
from pgsched.db.queries.runs.enqueue import wrong_connection
from pgsched.db.statements import sql

ROWS = 1000
Step = tuple[str, dict[str, Any]]
COLUMNS = (
    "task", "args", "queue", "priority", "max_attempts", "timeout", "tags", "at", "delay", "concurrency_key", "trace",
    "kill_after", "backoff", "backoff_base", "backoff_max", "backoff_jitter", "expires", "expires_at", "keep",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run of a graph that is to be made.

    `values`: the parameters of `enqueue`
    `parents`: True for a parent in `after_any`, False for one in `after`. A parent is a run's id, or a place in the
      graph below zero (-1 is the first run).
    `on_failure`: what happens if a parent fails: cancel, wait or run_anyway
    """

    values: dict[str, Any]
    parents: dict[int, bool]
    on_failure: str = "cancel"


def enqueue_graph(conn: Connection[Any] | ForeignConnection, new: Sequence[NewRun]) -> list[int]:
    """Make all these runs and their edges, or nothing; return the ids. A parent comes before its children."""
    ids: list[int] = []
    if isinstance(conn, ForeignConnection):
        with conn.transaction():
            for name, values in steps(new, ids):
                ids += sorted(row["id"] for row in conn.fetch(sql(name), values))
        return ids
    if not isinstance(conn, Connection):
        raise wrong_connection(conn, "psycopg.Connection")
    with cursor_on(conn, dict_row) as cursor:
        # Without autocommit this begins the caller's transaction. Else `transaction` would begin one and commit it.
        cursor.execute("SELECT")
        with conn.transaction():
            for name, values in steps(new, ids):
                cursor.execute(sql(name), values)
                if name == "dependencies_runs":
                    ids += sorted(row["id"] for row in cursor.fetchall())
    return ids


async def enqueue_graph_async(conn: AsyncConnection[Any], new: Sequence[NewRun]) -> list[int]:
    """Do what `enqueue_graph` does, for asyncio."""
    ids: list[int] = []
    if not isinstance(conn, AsyncConnection):
        raise wrong_connection(conn, "psycopg.AsyncConnection")
    async with cursor_on_async(conn, dict_row) as cursor:
        await cursor.execute("SELECT")
        async with conn.transaction():
            for name, values in steps(new, ids):
                await cursor.execute(sql(name), values)
                if name == "dependencies_runs":
                    ids += sorted(row["id"] for row in await cursor.fetchall())
    return ids


def steps(new: Sequence[NewRun], ids: list[int]) -> Generator[Step, None, None]:
    """Yield the statements that make a graph; the caller appends the ids of the runs made by each to `ids`."""
    waited_for = {-parent - 1 for run in new for parent in run.parents if parent < 0}
    rows = [row_of(run, place in waited_for) for place, run in enumerate(new)]
    for start in range(0, len(new), ROWS):
        yield "dependencies_runs", {"rows": json.dumps(rows[start : start + ROWS])}
    edges = [
        (ids[place], ids[-parent - 1] if parent < 0 else parent, run.on_failure, any_of)
        for place, run in enumerate(new)
        for parent, any_of in run.parents.items()
    ]
    if edges:
        yield "dependencies_add", arrays(edges)


def row_of(run: NewRun, has_children: bool) -> dict[str, Any]:
    """Return a run as a row of `dependencies_runs`."""
    given = {name: json_value(run.values[name]) for name in COLUMNS if run.values.get(name) is not None}
    return {**given, **({"waits": True} if run.parents else {}), **({"has_children": True} if has_children else {})}


def json_value(value: Any) -> Any:
    """Return a value as JSON has it, so that PostgreSQL reads the same value."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds()!r} seconds"
    return value.isoformat() if isinstance(value, datetime) else value
