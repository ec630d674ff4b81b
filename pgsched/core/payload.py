"""The rule: what goes into a jsonb column is proved to fit before it is sent.

One bad value would otherwise fail a whole batch of settlements, so everything PostgreSQL refuses is refused here:
what is no JSON, NaN and infinity, NUL characters, lone surrogates, and more than MAX_PAYLOAD_BYTES as jsonb stores it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pgsched.config import MAX_PAYLOAD_BYTES

# jsonb stores the two characters "1," as 12 bytes; nothing grows more than that.
WORST_GROWTH = 6
_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def encode(value: Any) -> str:
    """The JSON text of a value. ValueError says why there is none, as the end of a sentence about the value."""
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
    if size * WORST_GROWTH > MAX_PAYLOAD_BYTES:
        size = max(size, _stored_bytes(json.loads(text)))
    if size > MAX_PAYLOAD_BYTES:
        raise ValueError(f"takes {size:,} bytes; at most {MAX_PAYLOAD_BYTES:,} are allowed")
    return text


def _stored_bytes(value: Any) -> int:
    """The size of the value as jsonb, or a little more."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, dict):
        return 8 + sum(11 + len(key.encode()) + _stored_bytes(item) for key, item in value.items())
    if isinstance(value, list):
        return 8 + sum(4 + _stored_bytes(item) for item in value)
    if isinstance(value, bool) or value is None:
        return 0
    # A numeric: header, padding, and two bytes for every four decimal digits.
    return 12 + len(repr(value)) // 2
