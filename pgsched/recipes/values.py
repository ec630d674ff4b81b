"""Check what callers give: times to live, times to wait, names."""

from __future__ import annotations

from datetime import timedelta

from pgsched.app.declarations import duration, integer, prose, text
from pgsched.app.run_handle import seconds_of
from pgsched.errors import InputError

Seconds = float | timedelta | str
LEAST_TTL_S, LONGEST_TTL_S = 1.0, 86400.0

LONGEST_NOTE = 65536

check_name = text(200)
check_limit = integer(1, 10_000)


def check_ttl(value: Seconds) -> float:
    """Return a time to live in seconds: from 1 second to 1 day. Raises InputError."""
    seconds: float = duration(LEAST_TTL_S)("ttl", value).total_seconds()
    if seconds > LONGEST_TTL_S:
        raise InputError(f"ttl: {seconds:g} s is more than a day", "ttl")
    return seconds


def check_wait(value: Seconds | None) -> float | None:
    """Return a time to wait in seconds; None: without limit. Raises InputError."""
    return seconds_of(duration(0)("timeout", value) if isinstance(value, str) else value)


def check_note(value: str) -> str:
    """Return what others read of a contender: text of up to 64 KiB. Raises InputError."""
    found: str = prose(LONGEST_NOTE)("note", value)
    if len(found.encode()) > LONGEST_NOTE:
        raise InputError("note: longer than 64 KiB", "note")
    return found
