"""Decoding of a terminal's bytes into names of keys. Pure functions.

Invariant: an unknown escape sequence is dropped whole, so that no part of it acts as a key.
"""

from __future__ import annotations

import re

ESC = b"\x1b"
SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])")
UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
PASTED, PASTE_END = b"\x1b[200~", b"\x1b[201~"
ENDS = {
    "A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "Z": "backtab", "1~": "home",
    "7~": "home", "4~": "end", "8~": "end", "5~": "pgup", "6~": "pgdn",
}  # fmt: skip
SINGLE = {
    "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace", "\x0c": "ctrl-l",
    "\x15": "ctrl-u", "\x1b": "esc",
}  # fmt: skip


def decode_keys(data: bytes, *, all_there: bool = False) -> tuple[list[str], bytes]:
    """Return the keys in `data`, and the bytes at its end that may begin another key.

    `all_there`: no more bytes are coming, so that an escape at the end is the key Esc.
    """
    found: list[str] = []
    while data:
        if data.startswith(PASTED):
            text, end, behind = data[len(PASTED) :].partition(PASTE_END)
            if not end and not all_there:
                break
            found.append("paste:" + text.decode(errors="replace"))
            data = behind
        elif data.startswith(ESC):
            if UNFINISHED.match(data) and not all_there:
                break
            sequence = SEQUENCE.match(data)
            name = key_of_sequence(sequence[0]) if sequence else "esc"
            found += [name] if name else []
            data = data[sequence.end() if sequence else 1 :]
        else:
            size = utf8_length(data[0])
            if len(data) < size and not all_there:
                break
            character = data[:size].decode(errors="replace")
            found += [SINGLE.get(character, character)]
            data = data[size:]
    return found, data


def key_of_sequence(sequence: bytes) -> str | None:
    """Return the key of an escape sequence, ignoring Shift and other modifiers; None if it is unknown."""
    text = sequence.decode("ascii")
    modified = re.sub(r"1?;\d+(?=[A-Z~])", "", text[2:])
    return ENDS.get(modified)


def utf8_length(first: int) -> int:
    """Return the number of bytes of the UTF-8 character that begins with this byte."""
    return 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
