"""Settings in the database: queues, limits of keys, and retention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgsched.core import policies
from pgsched.core.model import Row
from pgsched.core.text import did_you_mean
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import queues
from pgsched.db.queries.leader import retention
from pgsched.db.queries.reports import name_hints
from pgsched.errors import InputError, NotFound


def set_queue(conn: Connection[Any], name: str, values: Mapping[str, Any]) -> Row:
    """Change settings of a queue (None restores a default); return its row. Raises InputError."""
    on_full = values.get("on_full")
    if on_full is not None and on_full not in policies.ON_FULL:
        raise InputError(f'on-full: "{on_full}" is neither {" nor ".join(policies.ON_FULL)}', "on-full")
    return queues.set_queue(conn, name, require_values(values))


def unknown_queue(conn: Connection[Any], name: str) -> str | None:
    """Return a note if nothing in the database names the queue yet, else None."""
    return name_hints.unknown(conn, "queue", name)


def set_limit(conn: Connection[Any], name: str, values: Mapping[str, Any]) -> Row:
    """Make or change a limit of keys (None restores a default); return its row. Raises InputError."""
    return queues.set_limit(conn, name, require_values(values))


def remove_limit(conn: Connection[Any], name: str) -> None:
    """Remove a limit of keys; the runs that it held go on. Raises NotFound."""
    try:
        queues.remove_limit(conn, name)
    except NotFound as error:
        raise NotFound(f"{error}{did_you_mean(name, name_hints.known_names(conn, 'limit'))}") from None


def change_retention(conn: Connection[Any], values: Mapping[str, Any]) -> Row:
    """Change how long everything is kept; return all settings of retention. Raises InputError."""
    return retention.change_settings(conn, require_values(values))


def require_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values. Raises InputError where there are none."""
    if not values:
        raise InputError("nothing to set: give at least one field")
    return dict(values)
