"""Turn Kazoo's paths into names and keys of pgsched, and bytes into JSON.

A path `/app/locks/x` is the name `app/locks/x`. Data that are a whole number in plain digits are kept as a JSON number,
so that counters can add to them; other UTF-8 text without NUL characters as a JSON string; all other bytes as
`{"b64": "..."}`. A value of another kind, which another program has put there, reads as its JSON text.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from pgsched.db.connection.json_values import UnreadableJson
from pgsched.recipes.kazoo.exceptions import BadArgumentsError, translated
from pgsched.recipes.values import json_text

LONGEST = 200
NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def clean_path(path: str) -> str:
    """Return a path with one slash before each element, "/" for the root. Raises TypeError and ValueError."""
    if not isinstance(path, str):
        raise TypeError(f"path: expected a str, got {type(path).__name__}")
    parts = [part for part in path.split("/") if part]
    if "." in parts or ".." in parts:
        raise ValueError(f"path: {path!r} has an element . or ..")
    return "/" + "/".join(parts)


def name_of(path: str) -> str:
    """Return the name that stands for a path in the database: up to 200 characters. Raises BadArgumentsError."""
    name = clean_path(path)[1:]
    if not name:
        raise BadArgumentsError("path: / is no name: give at least one element, such as /app", "path")
    if len(name) > LONGEST:
        raise BadArgumentsError(f"path: longer than {LONGEST} characters: {name[:60]}...", "path")
    return name


def identifier_text(identifier: Any) -> str:
    """Return what a contender or member says of itself; "" if it says nothing."""
    return str(identifier or "")


def to_json(data: bytes | None) -> Any:
    """Return the JSON value that keeps these bytes."""
    if data is None:
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {"b64": base64.b64encode(data).decode("ascii")}
    return int(text) if NUMBER.fullmatch(text) else text


def json_text_of(data: bytes | None) -> str:
    """Return the JSON text that keeps these bytes. Raises TypeError, and BadArgumentsError for more than 64 KiB."""
    if data is not None and not isinstance(data, bytes):
        raise TypeError(f"value: expected bytes, got {type(data).__name__}")
    with translated():
        return json_text("value", to_json(data))


def to_bytes(value: Any) -> bytes | None:
    """Return the bytes that a JSON value keeps."""
    if value is None:
        return None
    if isinstance(value, UnreadableJson):
        return value.text.encode("utf-8")
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, dict) and value.keys() == {"b64"}:
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (TypeError, ValueError, binascii.Error):
            pass
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
