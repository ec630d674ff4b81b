"""The operations of the JSON API about locks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.recipes import overview as locks
from pgsched.web.api.operations import Given

LISTED = 100


def list_locks(conn: Connection[Any], given: Given) -> Any:
    """Return locks in the order of their names."""
    found = locks.list_locks(
        conn, given.get("prefix", ""), after=given.get("after", ""), most=given.get("limit", LISTED),
        only_used=not given.get("all", False), kind=given.get("kind"),
    )  # fmt: skip
    return {"locks": found}


def show_lock(conn: Connection[Any], given: Given) -> Any:
    """Return one lock, its holders and those who wait for it. Raises NotFound."""
    found = locks.show_lock(conn, given["name"])
    return {"lock": found.row, "holders": list(map(asdict, found.holders)), "waiting": list(map(asdict, found.waiting))}


def break_lock(conn: Connection[Any], given: Given) -> Any:
    """Take a lock from its holders, or from one."""
    return {"name": given["name"], "broken": locks.break_lock(conn, given["name"], given.get("fence"))}
