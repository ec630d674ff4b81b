"""Limits, queues and pauses as people set them: set, list, remove, pause, resume.

Invariant: a setting is a row, and one SQL statement changes it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from psycopg import sql as composing

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.job_columns import encode_keep
from pgsched.db.rows import first_row, rows
from pgsched.errors import InputError, NotFound

DEFAULTS: dict[str, dict[str, Any]] = {
    "limits": {"ordered": False, "weight": 1},
    "queues": {"fair": False, "on_full": "reject"},
}


def set_limit(conn: Connection[Any], name: str, values: dict[str, Any]) -> Row:
    """Create or change a limit of keys; return its row.

    A value of None restores the default. Raises InputError.
    """
    if name == "job" or name.startswith("job:"):
        raise InputError("name: job is kept for the limits that jobs have (concurrency_limit)", "name")
    return upsert(conn, "limits", name, values)


def set_queue(conn: Connection[Any], name: str, values: dict[str, Any]) -> Row:
    """Create or change the settings of a queue; return its row.

    A value of None restores the default. Raises InputError.
    """
    return upsert(conn, "queues", name, values)


def upsert(conn: Connection[Any], table: str, name: str, values: dict[str, Any]) -> Row:
    """Insert or update the row of this name; return it. Columns without a value here stay as they are."""
    if not name or name != name.strip():
        raise InputError("name: must not be empty, nor begin or end with a space", "name")
    given = {column: DEFAULTS[table].get(column) if value is None else value for column, value in values.items()}
    columns = [composing.Identifier(column) for column in ("name", *given)]
    changes = [composing.SQL("{0} = excluded.{0}").format(column) for column in columns]
    statement = composing.SQL(
        "INSERT INTO pgsched.{table} ({columns}) VALUES ({values})"
        " ON CONFLICT (name) DO UPDATE SET {changes} RETURNING *"
    ).format(
        table=composing.Identifier(table),
        columns=composing.SQL(", ").join(columns),
        values=composing.SQL(", ").join(composing.Placeholder(column) for column in ("name", *given)),
        changes=composing.SQL(", ").join(changes),
    )
    try:
        row = first_row(
            conn, statement, {"name": name, **{c: encode_keep(v) if c == "keep" else v for c, v in given.items()}}
        )
    except InputError as error:
        if "_rate" in str(error):  # the CHECK over the three columns of a rate
            raise InputError("burst: needs a rate", "burst") from error
        raise
    assert row is not None
    return row


def list_limits(conn: Connection[Any]) -> list[Row]:
    """Return all limits of keys, with the counts of admitted and waiting runs of each."""
    return rows(conn, "limit_list")


def remove_limit(conn: Connection[Any], name: str) -> None:
    """Remove a limit of keys; runs that it held may start. Raises NotFound."""
    if not rows(conn, "limit_remove", {"name": name}):
        raise NotFound(f'there is no limit named "{name}"; `pgsched limit list` shows those there are')


def list_queues(conn: Connection[Any], *, bounded: bool = False) -> list[Row]:
    """Return the queues that have settings, a pause, or runs that are queued, running or waiting for limits.

    `bounded`: only those with a concurrency limit, a rate or a depth limit.
    """
    return rows(conn, "queue_list", {"bounded": bounded})


def pause(
    conn: Connection[Any], what: str, name: str, reason: str | None, paused_by: str | None, lasts: timedelta | None
) -> Row:
    """Pause everything (`what` is all), a queue or a task: nothing of it starts any more; return the pause.

    `name`: of the queue or task, empty for all
    `paused_by`: the session's user if None
    `lasts`: for how long; None: until it is resumed
    """
    values = {"what": what, "name": name, "reason": reason, "paused_by": paused_by, "lasts": lasts}
    row = first_row(conn, "pause_set", values)
    assert row is not None
    return row


def resume(conn: Connection[Any], what: str, name: str) -> Row:
    """End a pause; return it. Raises NotFound."""
    row = first_row(conn, "pause_end", {"what": what, "name": name})
    if row is None:
        raise NotFound(f"{describe_pause(what, name)} is not paused; `pgsched status` shows what is")
    return row


def list_pauses(conn: Connection[Any]) -> list[Row]:
    """Return the pauses in force now."""
    return rows(conn, "pause_list")


def describe_pause(what: str, name: str) -> str:
    """Describe what a pause covers, for a message."""
    return "everything" if what == "all" else f"{what} {name}"
