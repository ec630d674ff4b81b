"""Keys of the store for people: read, write, delete and list them, and say why that was refused.

Invariant: values stay the JSON text that the database has. PostgreSQL accepts JSON that Python cannot read, and keeps
digits that a float would lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pgsched.app.declarations import integer
from pgsched.core.model import Row
from pgsched.core.text import did_you_mean
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.recipes import store
from pgsched.errors import NotFound
from pgsched.recipes.values import check_key, check_version

TRIES = 3  # of a change, if others change the key at the same moment

check_present = integer(1, 2**63 - 1)  # a version of a key that is there


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a change of a key that was to have a version.

    `version`: that of the change; None: nothing was changed. `present`: the version that the key had; 0: no such key.
    """

    version: int | None
    present: int


def show_key(conn: Connection[Any], key: str) -> Row:
    """Return a key: `store_get` in sql/recipes.sql. Raises NotFound, with keys that may have been meant."""
    row = store.read_stored(conn, key)
    if row is None:
        raise not_found(conn, key)
    return row


def put_key(conn: Connection[Any], key: str, value: str, expected: int | None = None) -> Outcome:
    """Write a JSON text to a key, if its version is `expected` (0: if there is no such key; None: whatever it is).

    Raises InputError and NotPermitted.
    """
    check_key("key", key)
    if expected is not None:
        check_version("version", expected)
    return change_key(conn, key, expected, lambda: store.write_entry(conn, key, value, expected=expected))


def delete_key(conn: Connection[Any], key: str, expected: int | None = None) -> Outcome:
    """Delete a key, if its version is `expected` (None: whatever it is).

    Raises NotFound, with keys that may have been meant, InputError and NotPermitted.
    """
    if expected is not None:
        check_present("version", expected)
    outcome = change_key(conn, key, expected, lambda: store.delete_entry(conn, key, expected))
    if outcome.version is None and not outcome.present:
        raise not_found(conn, key)
    return outcome


def change_key(conn: Connection[Any], key: str, expected: int | None, change: Callable[[], int | None]) -> Outcome:
    """Change a key that has the version `expected`. Others are not made to wait for a change that is refused."""
    present = 0
    for _ in range(TRIES):
        if expected is not None and (present := version_of(conn, key)) != expected:
            break
        if (version := change()) is not None:
            return Outcome(version, present)
        if expected is None:
            break
    return Outcome(None, present)


def version_of(conn: Connection[Any], key: str) -> int:
    """Return the version of a key; 0 where there is no such key."""
    row = store.read_stored(conn, key)
    return 0 if row is None else row["version"]


def describe_refusal(key: str, expected: int | None, present: int) -> str:
    """Return why a key was not changed, as a sentence without a full stop."""
    if present == expected:
        why = f'"{key}" was changed at this moment: try again'
    elif not expected:
        why = f'there is a key "{key}" already, its version is {present}'
    elif not present:
        why = f'there is no key "{key}", so its version is not {expected}'
    else:
        why = f'the version of "{key}" is {present}, not {expected}'
    return f"{why}; nothing was changed"


def list_whole_keys(conn: Connection[Any], prefix: str, most: int) -> Iterator[Row]:
    """Yield up to `most` keys with this prefix, in order: `store_list` in sql/recipes.sql. Raises NotPermitted."""
    return read_pages(lambda after, n: store.list_stored(conn, prefix, after, n), most)


def list_names(conn: Connection[Any], prefix: str, most: int) -> Iterator[str]:
    """Yield the names of up to `most` keys with this prefix, in their order. Raises NotPermitted."""
    return (row["key"] for row in read_pages(lambda after, n: store.list_key_names(conn, prefix, after, n), most))


def read_pages(read: Callable[[str, int], list[Row]], most: int) -> Iterator[Row]:
    """Yield up to `most` keys, read a page at a time. `read`: returns up to so many of those after a key."""
    after = ""
    while most > 0:
        wanted = min(most, store.MOST_KEYS)
        page = read(after, wanted)
        yield from page
        if len(page) < wanted:
            return
        after, most = page[-1]["key"], most - wanted


def not_found(conn: Connection[Any], key: str) -> NotFound:
    """Return the error that says that there is no such key, with similar ones of the same path."""
    path = key[: key.rfind("/") + 1]
    hint = did_you_mean(key, list_names(conn, path, store.MOST_KEYS))
    return NotFound(f'there is no key "{key}"{hint or "; `pgsched kv list` shows those that there are"}')
