"""What the doctor says of locks: which one is held for long while others wait, and how many sessions there are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from shlex import quote
from typing import Any

from pgsched.core.backlog import format_seconds
from pgsched.core.model import Row
from pgsched.core.units import format_count
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import inspection
from pgsched.errors import NotPermitted
from pgsched.services.check import Finding, ok, warn

HELD_S, WAITS_S = 3600.0, 600.0  # a lock is reported that is held longer, while another has waited longer


def check_locks(conn: Connection[Any]) -> Iterator[Finding]:
    """Report locks that are held for long while others wait for long; count the sessions.

    A role that may not read the tables of locks sees its own locks, and no count.
    """
    found = inspection.long_locks(conn, HELD_S, WAITS_S)
    yield from map(describe_long_lock, found)
    if not found:
        with contextlib.suppress(NotPermitted):
            yield ok("lock", describe_counts(inspection.session_counts(conn)))


def describe_long_lock(row: Row) -> Finding:
    """Return the warning about a lock that is held for long."""
    name, count = row["name"], row["waiting"]
    text = (
        f"{name} has been held for {format_seconds(row['held_s'])} by {row['holder']} (fence {row['fence']}), and"
        f" {count} {'waits' if count == 1 else 'wait'} for it, the first for {format_seconds(row['waits_s'])}"
    )
    cure = f"see what that process does; to take it away: pgsched lock break {quote(name)} --fence {row['fence']}"
    return warn("lock", f"{text}; {cure}")


def describe_counts(row: Row) -> str:
    """Return how many sessions there are, and what they have."""
    return (
        f"{format_count(row['sessions'], 'session')}: {format_count(row['held'], 'grant')} of locks,"
        f" {row['waiting']} waiting"
    )
