"""Check what callers give: times to live, times to wait, names, keys, and values for the store."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from pgsched.app.declarations import duration, integer, prose, text
from pgsched.app.run_handle import seconds_of
from pgsched.core import payload
from pgsched.errors import InputError

Seconds = float | timedelta | str
LEAST_TTL_S, LONGEST_TTL_S = 1.0, 86400.0

LONGEST_NOTE = MOST_VALUE_BYTES = 65_536

check_name = text(200)
check_path = text(256)
check_limit = integer(1, 10_000)
check_version = integer(0, 2**63 - 1)  # of a key of the store; 0: before the first one


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


def check_key(name: str, value: Any) -> str:
    """Return a key of the store, or the beginning of one: up to 256 characters. Raises InputError."""
    found: str = check_path(name, value)
    if found.startswith("/"):
        raise InputError(f"{name}: must not begin with a slash", name)
    return found


def json_text(name: str, value: Any) -> str:
    """Return the JSON text of a value for the store, of up to 64 KiB. Raises InputError."""
    try:
        found, size = payload.encode_any_size(value)
    except ValueError as error:
        raise InputError(f"{name}: {error}", name) from None
    if size > MOST_VALUE_BYTES:
        raise InputError(f"{name}: has {size:,} bytes as JSON; at most {MOST_VALUE_BYTES:,} are allowed", name)
    return found


def check_delay(field: str, value: Seconds) -> float:
    """Return a time in seconds that is not negative. Raises InputError."""
    seconds: float = duration(0)(field, value).total_seconds()
    return seconds


def encode_json(field: str, value: Any) -> str:
    """Return a value as JSON. Raises InputError where JSON cannot hold it."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{field}: JSON cannot hold it: {error}", field) from error
