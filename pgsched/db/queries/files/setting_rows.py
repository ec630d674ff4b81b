"""Write many queues, limits, pauses and calendars with a few statements each, and the entries that declare them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from psycopg.types.json import Jsonb

from pgsched.db.connection.connect import Connection
from pgsched.db.queries.files.stored import Pairs
from pgsched.db.rows import rows
from pgsched.errors import NotPermitted, PgschedError

SET = {"queue": "file_queues_set", "limit": "file_limits_set", "pause": "file_pauses_set"}
DELETE = {"queue": "file_queues_delete", "limit": "file_limits_delete", "pause": "file_pauses_delete",
          "calendar": "file_calendars_delete"}  # fmt: skip


def set_rows(conn: Connection[Any], what: str, given: Sequence[dict[str, Any]]) -> None:
    """Make or change queues, limits or pauses: the columns of each. Raises InputError."""
    if given:
        rows(conn, SET[what], {"rows": Jsonb(list(given))})


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
    """Delete queues, limits, pauses or calendars."""
    if names:
        rows(conn, DELETE[what], {"names": list(names)})


def add_entries(conn: Connection[Any], owner: str, keys: Pairs, adopt: bool) -> None:
    """Declare objects with the file of an owner. `adopt`: take those that another owner's file declares.

    Raises PgschedError where another file has declared one meanwhile, and NotPermitted where a role does whose entries
    the caller may not see.
    """
    if not keys:
        return
    values = {"owner": owner, "what": [what for what, _ in keys], "names": [name for _, name in keys], "adopt": adopt}
    try:
        found = {(row["what"], row["name"]) for row in rows(conn, "file_entries_add", values)}
    except NotPermitted as error:
        raise NotPermitted(f"a file of another role declares some of these objects already: {error}") from error
    missing = sorted({(str(what), name) for what, name in keys} - found)
    if missing:
        raise PgschedError(f"another file has declared {missing[0][0]} {missing[0][1]} meanwhile: nothing was changed")


def drop_entries(conn: Connection[Any], owner: str, keys: Pairs) -> None:
    """Forget entries whose objects are gone. Where the caller may not, as a producer, they stay, and mean nothing."""
    if keys:
        values = {"owner": owner, "what": [what for what, _ in keys], "names": [name for _, name in keys]}
        with suppress(NotPermitted), conn.transaction():
            rows(conn, "file_entries_drop", values)
