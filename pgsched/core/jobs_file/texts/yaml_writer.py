"""Write values as YAML that every reader of YAML 1.1 and 1.2 reads as the same values.

Invariant: a text stays that text. It is quoted if any reader could take it for a number, a boolean, null, a date, a
tag, an alias or a comment. It is also quoted if it holds anything but letters, digits and a few signs. Control and
invisible characters are escaped, so that no file controls a terminal.

PyYAML's own writer does not quote what only YAML 1.2 takes for a number, does not escape invisible characters, and
writes no comments between values, which the files of imports have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pgsched.control_characters import CONTROL

WIDTH = 110
DEEPEST_BLOCK = 16  # spaces before the keys of a block; what is nested deeper stands in one line
LONGEST_KEY = 1000  # a parser looks 1,024 characters ahead for the `:` of a key; a longer one has `?` before it
PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+=@-]*(?: [A-Za-z0-9_./+=@][A-Za-z0-9_./+=@-]*)*")
LENGTH = re.compile(r"[0-9]+ms|[0-9]+(?:\.[0-9]+)? [a-z]+(?: [0-9]+(?:\.[0-9]+)? [a-z]+)*")  # of time: 90 seconds
WORDS_WITH_A_MEANING = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"}
# Characters that YAML prints as they are; of these, line ends that YAML reads as such are left out.
PRINTABLE = re.compile(r"[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def scalar_text(value: Any) -> str:
    """Return a text, number, boolean or null as one line of YAML."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        text = repr(value)  # readers of YAML 1.1 want a point in 1e-07
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    text = str(value)
    if LENGTH.fullmatch(text) or (PLAIN.fullmatch(text) and text.lower() not in WORDS_WITH_A_MEANING):
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


def flow_text(value: Any) -> str:
    """Return a value in one line: `{a: 1, b: [x, y]}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key_text(key)}: {flow_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    return scalar_text(value)


def _key_text(key: str) -> str:
    """Return the key of a mapping in one line; the `:` follows it."""
    text = scalar_text(key)
    return text if len(text) <= LONGEST_KEY else f"? {text} "


def key_lines(key: str, indent: int) -> list[str]:
    """Return the lines of a key: `key:`, or two for a long one. The value stands behind the last or below."""
    room, text = " " * indent, scalar_text(key)
    return [f"{room}{text}:"] if len(text) <= LONGEST_KEY else [f"{room}? {text}", f"{room}:"]


def entry_lines(key: str, value: Any, indent: int, blocks: int = 0) -> Iterator[str]:
    """Yield the lines of `key: value`: one, where that is not too long, else a block.

    `blocks`: so many levels of mappings are blocks, however short they are.
    """
    *above, start = key_lines(key, indent)
    yield from above
    if isinstance(value, str) and "\n" in value.rstrip("\n") and (block := _literal(value, indent + 2)):
        yield f"{start} {block[0]}"
        yield from block[1:]
    elif not _is_long(value, start, blocks) or indent > DEEPEST_BLOCK:
        yield f"{start} {flow_text(value)}"
    elif isinstance(value, Mapping):
        yield start
        for inner, one in value.items():
            yield from entry_lines(inner, one, indent + 2, max(blocks - 1, 0))
    else:
        yield start
        yield from (f"{' ' * indent}  - {flow_text(one)}" for one in value)


def _is_long(value: Any, start: str, blocks: int) -> bool:
    """Check whether a list or mapping is to be a block behind the text `start`."""
    if not isinstance(value, Mapping | list | tuple) or not value:
        return False
    if blocks and isinstance(value, Mapping):
        return True
    return len(start) + 1 + len(flow_text(value)) > WIDTH


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
