"""Check and encode values for jsonb columns.

Invariant: a value is checked before it is sent, because one bad value would fail a whole batch of settlements.
Everything that PostgreSQL refuses is refused here:

- values that are not JSON, NaN and infinity
- NUL characters and lone surrogates
- more than MAX_PAYLOAD_BYTES, as jsonb stores the value
"""

from __future__ import annotations

import json
import re
from datetime import date, time, timedelta
from typing import Any
from uuid import UUID

from pgsched.config import MAX_PAYLOAD_BYTES

# jsonb stores the two characters "1," as 12 bytes. That is the largest growth of any JSON text.
WORST_GROWTH = 6
_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def encode(value: Any) -> str:
    """Return the JSON text of a value.

    Raises ValueError where there is none, or it is too large; its text is the end of a sentence about the value.
    """
    text, size = encode_any_size(value)
    if size * WORST_GROWTH > MAX_PAYLOAD_BYTES:
        size = max(size, stored_bytes(json.loads(text)))
    if size > MAX_PAYLOAD_BYTES:
        raise ValueError(f"takes {size:,} bytes; at most {MAX_PAYLOAD_BYTES:,} are allowed")
    return text


def encode_any_size(value: Any) -> tuple[str, int]:
    """Return the JSON text of a value, and how many bytes the text has. Raises ValueError as `encode` does."""
    try:
        text = _JSON.encode(value)
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("holds half a surrogate pair, which is not text") from None
    except RecursionError:
        raise ValueError("is nested too deeply for JSON") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if "\\u0000" in text and _NUL.search(text):
        raise ValueError("holds a NUL character, which PostgreSQL cannot store")
    return text, size


def stored_bytes(value: Any) -> int:
    """Return the size of the value as jsonb, or slightly more.

    Uses a loop, because recursion would reach its limit at fewer levels than the JSON encoder.
    """
    found, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found += len(one.encode())
        elif isinstance(one, dict):
            found += 8 + sum(11 + len(key.encode()) for key in one)
            left.extend(one.values())
        elif isinstance(one, list):
            found += 8 + 4 * len(one)
            left.extend(one)
        elif not (isinstance(one, bool) or one is None):
            # A numeric: header, padding, and two bytes for every four decimal digits.
            found += 12 + len(repr(one)) // 2
    return found


def json_value(value: Any) -> Any:
    """Convert what JSON cannot represent: instants, dates, times of the day and uuids to text, durations to seconds.

    For `json.dumps(default=...)`. Raises TypeError for other types.
    """
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
