"""The store: read, write, list and watch keys; add to numbers; enter and leave double barriers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.connection.json_values import parse_json, program_value
from pgsched.db.rows import fetch, first_row, rows
from pgsched.errors import InputError

MOST_KEYS = 1000  # in one answer


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of the store, and its value; in a list, a text that says so where Python cannot read the JSON.

    `version`: that of the last change, for `expected`; it grows with each change under the same first element of keys.
    `revision`: how often the key was written, from 1. `bound`: the key goes with the process that wrote it.
    """

    key: str
    value: Any
    version: int
    revision: int
    changed_at: datetime
    bound: bool


class StoredChange(NamedTuple):
    """One change: the key was written, or deleted (`value` is None). `value`: JSON text."""

    version: int
    key: str
    value: str | None
    changed_at: datetime


class Changes(NamedTuple):
    """What there is to read of changes.

    `upto`: the version up to which they were read. `skipped`: some that are newer than asked for are not kept any more.
    `look_in_s`: when to ask again at the latest. `channel`: of the notifications.
    """

    upto: int
    skipped: bool
    look_in_s: float
    channel: str
    changes: list[StoredChange]


class Standing(NamedTuple):
    """How it stands with a member of a double barrier. `round`: None: it is not inside."""

    round: int | None
    open: bool


def json_value_of(text: str) -> Any:
    """Return the value of a JSON text. Raises InputError where Python cannot read it."""
    return program_value(parse_json(text), "value")


def read_entry(conn: Connection[Any], key: str) -> Entry | None:
    """Return a key with its value; None where there is no such key.

    Raises NotPermitted, and InputError where Python cannot read the value.
    """
    row = read_stored(conn, key)
    return None if row is None else Entry(**{**row, "value": json_value_of(row["value"])})


def read_stored(conn: Connection[Any], key: str) -> Row | None:
    """Return a key with the JSON text of its value: `store_get` in sql/recipes.sql; None where there is no such key."""
    return first_row(conn, "store_get", {"key": key})


def read_number(conn: Connection[Any], key: str) -> Decimal:
    """Return a number exactly; 0 where there is no such key. Raises InputError where the value is no number."""
    row = read_stored(conn, key)
    if row is None:
        return Decimal(0)
    if row["value"][0] not in "-0123456789":
        raise InputError(f'key: the value of "{key}" is no number', "key")
    return Decimal(row["value"])


def add_number(conn: Connection[Any], key: str, amount: str) -> Decimal:
    """Add to a number; return the sum. Raises InputError where the value is no number."""
    return Decimal(rows(conn, "store_add", {"key": key, "amount": amount})[0]["total"])


def write_entry(
    conn: Connection[Any], key: str, value: str, *, expected: int | None = None, session: UUID | None = None
) -> int | None:
    """Write a JSON text to a key; return the version, None where the key has another version than `expected`."""
    params = {"key": key, "value": value, "expected": expected, "session": session and str(session)}
    version: int | None = rows(conn, "store_put", params)[0]["version"]
    return version


def delete_entry(conn: Connection[Any], key: str, expected: int | None = None) -> int | None:
    """Delete a key; return the version of the change, None where there is no such key, or it has another version."""
    version: int | None = rows(conn, "store_delete", {"key": key, "expected": expected})[0]["version"]
    return version


def list_entries(conn: Connection[Any], prefix: str, after: str, most: int) -> list[Entry]:
    """Return up to `most` keys with this prefix (at most 1,000), in their order, after a key."""
    return [entry_of(row) for row in list_stored(conn, prefix, after, most)]


def list_stored(conn: Connection[Any], prefix: str, after: str, most: int) -> list[Row]:
    """Return keys as `list_entries` does, each with the JSON text of its value."""
    return rows(conn, "store_list", {"prefix": prefix, "after": after, "most": most})


def list_key_names(conn: Connection[Any], prefix: str, after: str, most: int) -> list[Row]:
    """Return keys as `list_entries` does, without their values."""
    return rows(conn, "store_keys", {"prefix": prefix, "after": after, "most": most})


def entry_of(row: Row) -> Entry:
    """Return a row of a list as an entry."""
    return Entry(**{**row, "value": parse_json(row["value"])})


def read_changes(conn: Connection[Any], prefix: str, since: int | None) -> Changes:
    """Return the changes after `since`, of at most 1,000 versions; None: only the present version."""
    return changes_of(rows(conn, "store_changes", {"prefix": prefix, "since": since}))


def follow_changes(conn: Connection[Any], prefix: str, since: int) -> Changes:
    """Return the changes after `since`, as `read_changes` does. Raises the driver's errors, for a loop to classify."""
    return changes_of(fetch(conn, "store_changes", {"prefix": prefix, "since": since}))


def changes_of(found: Iterable[Row]) -> Changes:
    """Return rows as what there is to read of changes."""
    listed = list(found)
    first = listed[0]
    changes = [
        StoredChange(row["version"], row["key"], row["value"], row["changed_at"]) for row in listed if row["key"]
    ]
    return Changes(first["upto"], first["skipped"], first["look_in_s"], first["channel"], changes)


def enter_barrier(conn: Connection[Any], params: Row) -> Standing:
    """Enter a double barrier: `barrier_enter` in sql/recipes.sql says with what. Raises InputError or LeaseLost."""
    return Standing(**rows(conn, "barrier_enter", params)[0])


def leave_barrier(conn: Connection[Any], name: str, token: UUID, number: int) -> bool:
    """Leave a round of a double barrier; return whether all its members have left."""
    return bool(rows(conn, "barrier_leave", {"name": name, "token": token, "round": number})[0]["over"])


def withdraw_from_barrier(conn: Connection[Any], name: str, token: UUID) -> bool:
    """Give up waiting for a double barrier; return False where it has opened with this member inside."""
    return bool(rows(conn, "barrier_withdraw", {"name": name, "token": token})[0]["withdrawn"])
