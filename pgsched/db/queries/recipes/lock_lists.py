"""Lists of locks: which there are, who holds them and how many wait, as far as the caller may see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows

PAGE = 1000


def read_locks(
    conn: Connection[Any],
    prefix: str = "",
    *,
    after: str = "",
    most: int = PAGE,
    only_used: bool = True,
    kind: str | None = None,
) -> list[Row]:
    """Return the first locks after a name whose names begin with `prefix`: `lock_list` in sql/locks.sql.

    `only_used`: only those that somebody holds or waits for. `kind`: lock or election; None: both.
    """
    found: list[Row] = []
    for page in pages(conn, {"prefix": prefix, "only_used": only_used, "kind": kind}, after, most):
        found += page
    return found


def pages(conn: Connection[Any], wanted: dict[str, Any], after: str, most: int) -> Iterator[list[Row]]:
    """Yield the wanted locks in pages, `most` of them together."""
    left = most
    while left > 0:
        size = min(PAGE, left)
        page = rows(conn, "lock_list", {**wanted, "after": after, "most": size})
        yield page
        left = left - size if len(page) == size else 0
        after = page[-1]["name"] if page else ""
