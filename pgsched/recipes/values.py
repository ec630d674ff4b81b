"""Check what callers give: times to live, times to wait, names, values."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from pgsched.app.declarations import duration, text
from pgsched.app.run_handle import seconds_of
from pgsched.errors import InputError

Seconds = float | timedelta | str
LEAST_TTL_S, LONGEST_TTL_S = 1.0, 86400.0

check_name = text(200)


def check_ttl(value: Seconds) -> float:
    """Return a time to live in seconds: from 1 second to 1 day. Raises InputError."""
    seconds: float = duration(LEAST_TTL_S)("ttl", value).total_seconds()
    if seconds > LONGEST_TTL_S:
        raise InputError(f"ttl: {seconds:g} s is more than a day", "ttl")
    return seconds


def check_wait(value: Seconds | None) -> float | None:
    """Return a time to wait in seconds; None: without limit. Raises InputError."""
    return seconds_of(duration(0)("timeout", value) if isinstance(value, str) else value)


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
