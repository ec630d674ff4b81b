"""Unique keys of arguments as the database makes them (migrations/1002_surface/44_enqueue.sql), without a database."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pgsched.errors import InputError

PARTS = re.compile(r"\{([^{}]+)\}|\{|[^{]+")
ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
LONGEST, KEPT = 500, 400


def unique_key_of(values: Mapping[str, Any]) -> str | None:
    """Return the unique key of the run to be enqueued, or None. Raises InputError for an argument that is missing."""
    if values["unique_key"] is not None:
        return str(values["unique_key"])
    template, names = values.get("unique_template"), values["unique_by"]
    if template is None and names is None:
        return None
    args = json.loads(values["args"], parse_float=Decimal)
    defaults = json.loads(values.get("defaults") or "{}", parse_float=Decimal)
    return arguments_key(values, names, args, defaults) if template is None else template_key(template, args, defaults)


def refuse_template(values: Mapping[str, Any]) -> None:
    """Raise InputError for a key that names an argument in braces, given by the name of a task that is not known here.

    Of a task that this program has, `task.options` has refused that already.
    """
    key = values["unique_key"]
    if key is None or not values.get("by_name"):
        return
    args = json.loads(values["args"])
    name = next((name for name in args if f"{{{name}}}" in key), None) if isinstance(args, dict) else None
    if name is not None:
        raise InputError(
            f'unique_key: "{key[:60]}" holds {{{name[:60]}}}, but a key that is given at a call is taken as it is: use'
            f' unique_by=("{name[:60]}",), or let the task declare this key',
            "unique_key",
        )


def template_key(template: str, args: Any, defaults: Mapping[str, Any]) -> str:
    """Return the key that a template makes of these arguments."""

    def written(part: re.Match[str]) -> str:
        if part[1] is None:
            return part[0]
        return jsonb_text(argument("unique_key", part[1], args, defaults)).replace("\x7f", "\\u007f")

    key = "".join(map(written, PARTS.finditer(template)))
    return key if len(key) <= LONGEST else f"{key[:KEPT]} {sha256(key)}"


def arguments_key(values: Mapping[str, Any], names: list[str], args: Any, defaults: Mapping[str, Any]) -> str:
    """Return the key that is made of these arguments, or of all (["*"])."""
    if names == ["*"]:
        chosen = {**defaults, **args} if isinstance(args, dict) else args
    else:
        chosen = {name: argument("unique_by", name, args, defaults) for name in names}
    return f"{values['task'][:200].strip()} {sha256(values['task'] + ' ' + jsonb_text(chosen))}"


def argument(option: str, name: str, args: Any, defaults: Mapping[str, Any]) -> Any:
    """Return an argument, or its default. Raises InputError if it has neither."""
    if isinstance(args, list) and name.isdecimal() and int(name) < len(args):
        return args[int(name)]
    if isinstance(args, dict) and name in args:
        return args[name]
    if name not in defaults:
        raise InputError(f'{option}: the run has no argument "{name[:60]}", and it has no default', option)
    return defaults[name]


def jsonb_text(value: Any) -> str:
    """Return a value, parsed with Decimal for float, as PostgreSQL writes its canonical form."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | Decimal):
        text = format(value, "f") if isinstance(value, Decimal) else str(value)
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text in ("-0", "") else text
    if isinstance(value, str):
        return f'"{"".join(map(escape, value))}"'
    if isinstance(value, list):
        return f"[{', '.join(map(jsonb_text, value))}]"
    keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
    return f"{{{', '.join(f'{jsonb_text(key)}: {jsonb_text(value[key])}' for key in keys)}}}"


def escape(character: str) -> str:
    """Return a character as PostgreSQL writes it in JSON text."""
    return ESCAPES.get(character) or (f"\\u{ord(character):04x}" if character < " " else character)


def sha256(text: str) -> str:
    """Return the hash of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()
