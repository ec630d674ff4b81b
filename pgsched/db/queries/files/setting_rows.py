"""Write many queues, limits, pauses and calendars with a few statements each, and the entries that declare them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from psycopg.types.json import Jsonb

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.files.stored import Pairs
from pgsched.db.rows import rows
from pgsched.errors import InputError, NotPermitted, PgschedError

SET = {"queue": "file_queues_set", "limit": "file_limits_set", "pause": "file_pauses_set"}
DELETE = {"queue": "file_queues_delete", "limit": "file_limits_delete", "pause": "file_pauses_delete",
          "calendar": "file_calendars_delete"}  # fmt: skip


def set_rows(conn: Connection[Any], what: str, given: Sequence[dict[str, Any]]) -> None:
    """Make or change queues, limits or pauses: the columns of each.

    Raises InputError, and PgschedError for a limit that code declares by now.
    """
    if not given:
        return
    found = {row["name"] for row in rows(conn, SET[what], {"rows": Jsonb(list(given))})}
    missing = sorted({row["name"] or "" for row in given} - found)
    if missing:
        raise PgschedError(f"{what} {missing[0]}: code has declared it meanwhile: nothing was changed")


def set_calendars(conn: Connection[Any], given: Sequence[dict[str, Any]]) -> None:
    """Make or change calendars: name, description, and `times`, which replace those that there are.

    Times that stay are not written. Raises InputError, and NotPermitted for calendars of other owners.
    """
    if not given:
        return
    rows(conn, "file_calendars_set", {"rows": Jsonb([{**one, "times": None} for one in given])})
    times = [{"calendar": one["name"], **time} for one in given for time in one["times"]]
    values = {"names": [one["name"] for one in given], "rows": Jsonb(times)}
    rows(conn, "file_calendar_times_remove", values)
    rows(conn, "file_calendar_times_add", values)


def set_retention(conn: Connection[Any], values: dict[str, Any], changed: Collection[str]) -> None:
    """Set how long everything is kept. `changed`: the columns that differ; keep_audit needs a right of its own."""
    if set(changed) - {"keep_audit"}:
        rows(conn, "file_retention_set", {"rows": Jsonb([values])})
    if "keep_audit" in changed:
        rows(conn, "file_retention_audit", {"rows": Jsonb([values])})


def set_alerts(conn: Connection[Any], values: dict[str, Any]) -> None:
    """Set what is watched where a job does not say it."""
    rows(conn, "file_alerts_set", {"rows": Jsonb([values])})


def delete_rows(conn: Connection[Any], what: str, names: Sequence[str]) -> None:
    """Delete queues, limits, pauses or calendars. Raises InputError for a calendar that jobs use, with its name."""
    if what != "calendar":
        if names:
            rows(conn, DELETE[what], {"names": list(names)})
        return
    for name in names:
        try:
            rows(conn, DELETE[what], {"names": [name]})
        except InputError as error:
            raise InputError(f"calendar {name}: {str(error).removeprefix('calendar: ')}", "calendar") from error


def add_entries(
    conn: Connection[Any], owner: str, entries: Sequence[tuple[str, str, str, str | None]], adopt: bool
) -> None:
    """Declare objects with the file of an owner: (what, name, the columns that it decides, run_at).

    `adopt`: take those that another owner's file declares.

    Raises PgschedError where another file has declared one meanwhile, and NotPermitted where a role does whose entries
    the caller may not see.
    """
    if not entries:
        return
    columns = ("what", "names", "decides", "run_at")
    values = {"owner": owner, "adopt": adopt} | dict(zip(columns, map(list, zip(*entries, strict=True)), strict=True))
    try:
        found = {(row["what"], row["name"]) for row in rows(conn, "file_entries_add", values)}
    except NotPermitted as error:
        raise NotPermitted(f"a file of another role declares some of these objects already: {error}") from error
    missing = sorted({(what, name) for what, name, *_ in entries} - found)
    if missing:
        raise PgschedError(f"another file has declared {missing[0][0]} {missing[0][1]} meanwhile: nothing was changed")


def drop_entries(conn: Connection[Any], owner: str, keys: Pairs) -> None:
    """Forget entries that mean nothing any more. A producer may not: its jobs that have run once stay noted as such."""
    if keys:
        values = {"owner": owner, "what": [what for what, _ in keys], "names": [name for _, name in keys]}
        with suppress(NotPermitted), conn.transaction():
            rows(conn, "file_entries_drop", values)
