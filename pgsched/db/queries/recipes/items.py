"""Item queues: put items, get them, consume them or give them back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgsched.db.arrays import plain
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows

MOST_PUT = 10_000  # items in one statement
MOST_GOT = 1000


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item, as it was handed out."""

    id: int
    value: Any
    priority: int
    attempt: int
    put_at: datetime


class ItemCounts(NamedTuple):
    """How many items of a queue are not consumed.

    `ready`: they can be got now. `later`: they can be got later, because they were put or given back with a delay.
    `taken`: they were got, and are held.
    """

    ready: int
    later: int
    taken: int


def put(conn: Connection[Any], name: str, item: str, priority: int, delay_s: float) -> int:
    """Put an item, given as JSON; return its id. Raises InputError, NotPermitted, QueueFull."""
    return int(rows(conn, "item_put", {"name": name, "item": item, "priority": priority, "delay_s": delay_s})[0]["id"])


def put_many(conn: Connection[Any], name: str, items: str, priority: int, delay_s: float) -> list[int]:
    """Put the items of a JSON array; return their ids. Raises the errors of `put`."""
    params = {"name": name, "items": items, "priority": priority, "delay_s": delay_s}
    return list(rows(conn, "item_put_many", params)[0]["ids"])


def get(
    conn: Connection[Any], name: str, token: UUID, session: UUID, most: int, max_attempts: int, wait: bool
) -> tuple[list[ItemRow], float | None]:
    """Get the first items of a queue; return them and, if there are none, in how many seconds to ask again.

    Raises InputError, NotPermitted, and LeaseLost where the session has ended.
    """
    params = {
        "name": name, "token": token, "session": session, "most": most, "max_attempts": max_attempts, "wait": wait,
    }  # fmt: skip
    found = rows(conn, "item_get", params)
    look_in_s = found[0]["look_in_s"]
    items = [
        ItemRow(row["id"], row["value"], row["priority"], row["attempt"], row["put_at"])
        for row in found
        if row["id"] is not None
    ]
    return items, look_in_s


def consume(conn: Connection[Any], pairs: Iterable[tuple[int, UUID]], session: UUID) -> set[int]:
    """Delete items, each given with its token; return the ids of those that this session held."""
    pairs = list(pairs)
    params = {"ids": plain(item for item, _ in pairs), "tokens": plain(token for _, token in pairs), "session": session}
    return {int(row["id"]) for row in rows(conn, "item_consume", params)}


def give_back(conn: Connection[Any], item: int, token: UUID, delay_s: float, error: str | None) -> bool:
    """Put an item back into the line; return False where it was not held any more."""
    return bool(
        rows(conn, "item_give_back", {"id": item, "token": token, "delay_s": delay_s, "error": error})[0]["done"]
    )


def extend(conn: Connection[Any], item: int, token: UUID) -> bool:
    """Renew the session that holds an item; return False where it is not held any more."""
    return bool(rows(conn, "item_extend", {"id": item, "token": token})[0]["held"])


def leave(conn: Connection[Any], name: str, token: UUID, session: UUID) -> None:
    """Wait for items no more, and give back what was got with this token."""
    rows(conn, "item_leave", {"name": name, "token": token, "session": session})


def count_items(conn: Connection[Any], name: str) -> ItemCounts:
    """Count the items of a queue. Raises NotPermitted."""
    return ItemCounts(**rows(conn, "item_counts", {"name": name})[0])
