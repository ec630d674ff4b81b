"""The page of locks: who holds which, who waits, and the button that takes one from its holder.

Invariant: a button names the fence that its page has shown, so that it never takes a lock from a later holder.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from pgsched.db.connection.connect import Connection
from pgsched.errors import InputError
from pgsched.recipes import overview as locks
from pgsched.web.pages.rendering import query_string
from pgsched.web.pages.responses import Redirect, View, field_integer

SHOWN = 200  # names on the page, and places of the line


def locks_page(request: Request, conn: Connection[Any]) -> View:
    """Return the page of the locks in use, with the line of the one that is chosen."""
    prefix, name = exact_field(request, "prefix"), exact_field(request, "name")
    found = locks.list_locks(conn, prefix, most=SHOWN + 1)
    values = {
        "locks": [row | described(row) for row in found[:SHOWN]], "more": len(found) > SHOWN, "prefix": prefix,
        "chosen": locks.show_lock(conn, name) if name else None, "kind_of": locks.describe_kind, "most": SHOWN,
    }  # fmt: skip
    return View("locks.html", values)


def described(row: dict[str, Any]) -> dict[str, str]:
    """Return the texts of a lock, in the words of `pgsched lock list`."""
    return {"kind_text": locks.describe_kind(row), "held_text": locks.describe_holders(row)}


def take_away(request: Request, conn: Connection[Any]) -> Redirect:
    """Take a lock from the holder with this fence."""
    name, fence = exact_field(request, "name"), field_integer(request, "fence")
    if fence is None or not 0 < fence < 2**63:
        raise InputError("fence: say from which holder", "fence")
    broken = locks.break_lock(conn, name, fence)
    return Redirect(f"/locks?{query_string({'name': name})}", f"{locks.describe_break(broken, name, fence)}.")


def exact_field(request: Request, name: str) -> str:
    """Return a field of the form, else of the URL, with the spaces around it; empty if it is missing."""
    form: dict[str, list[str]] = request.state.form
    return form[name][-1] if name in form else request.query_params.get(name, "")
