"""Write values as YAML that every reader of YAML 1.1 and 1.2 reads as the same values.

Invariant: a text stays that text. It is quoted if any reader could take it for a number, a boolean, null, a date, a
tag, an alias or a comment. It is also quoted if it holds anything but letters, digits and a few signs. Control and
invisible characters are escaped, so that no file controls a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from pgsched.control_characters import CONTROL

WIDTH = 110
PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+=@-]*(?: [A-Za-z0-9_./+=@][A-Za-z0-9_./+=@-]*)*")
WORDS_WITH_A_MEANING = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"}
# Characters that YAML prints as they are; of these, line ends that YAML reads as such are left out.
PRINTABLE = re.compile(r"[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def scalar_text(value: Any) -> str:
    """Return a value as one line of YAML: text, number, boolean, null, length of time or instant."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, timedelta):
        return length_text(value)
    if isinstance(value, datetime | date):
        value = value.isoformat()
    text = str(value)
    if PLAIN.fullmatch(text) and text.lower() not in WORDS_WITH_A_MEANING:
        return text
    if is_safe(text) and ("'" not in text or '"' in text or "\\" in text):
        return "'" + text.replace("'", "''") + "'"
    return '"' + escape_unprintable("".join(ESCAPES.get(char, char) for char in text)) + '"'


def escape_unprintable(text: str) -> str:
    """Return the text with escapes for the characters that YAML does not allow, and for those that nobody sees."""
    return text if is_safe(text) else "".join(map(_escaped, text))


def is_safe(text: str) -> bool:
    """Check whether a text may stand in a file as it is: YAML allows its characters, and none is invisible."""
    return PRINTABLE.fullmatch(text) is not None and CONTROL.search(text) is None


def _escaped(char: str) -> str:
    if is_safe(char):
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def length_text(value: timedelta) -> str:
    """Return a length of time as people write it, in one unit: `90 seconds`, `2 hours`."""
    seconds = value.total_seconds()
    if seconds != int(seconds):
        return f"{round(seconds * 1000)}ms"
    size, unit = next((one for one in UNITS if seconds and int(seconds) % one[0] == 0), UNITS[-1])
    count = int(seconds) // size
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def flow_text(value: Any) -> str:
    """Return a value in one line: `{a: 1, b: [x, y]}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar_text(key)}: {flow_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    return scalar_text(value)


def entry_lines(key: str, value: Any, indent: int) -> Iterator[str]:
    """Yield the lines of `key: value`: one, where that is not too long, else a block."""
    room = " " * indent
    start = f"{room}{scalar_text(key)}:"
    if isinstance(value, str) and "\n" in value.rstrip("\n") and (block := _literal(value, indent + 2)):
        yield f"{start} {block[0]}"
        yield from block[1:]
        return
    flow = f"{start} {flow_text(value)}"
    if not isinstance(value, Mapping | list | tuple) or not value or len(flow) <= WIDTH:
        yield flow
        return
    yield start
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from entry_lines(name, one, indent + 2)
    else:
        for one in value:
            yield f"{room}  - {flow_text(one)}"


def _literal(text: str, indent: int) -> list[str] | None:
    """Return a text of several lines as a literal block; None where a block would not keep it as it is."""
    body = text.removesuffix("\n")
    lines = body.split("\n")
    if not body or body.endswith("\n") or lines[0] == "" or lines[0][0] in " \t":
        return None
    if not all(is_safe(line.replace("\t", "")) for line in lines):
        return None
    room = " " * indent
    return ["|-" if body == text else "|", *(f"{room}{line}" if line else "" for line in lines)]
