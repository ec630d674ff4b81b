"""Bytes of a terminal as names of keys. Pure. The rule: what is not understood is dropped whole, so that the rest of an
unknown sequence is never taken for keys that do something."""

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


def keys(data: bytes, *, all_there: bool = False) -> tuple[list[str], bytes]:
    """The keys in `data`, and the bytes that may be the beginning of another one; `all_there`: no more come, so that an
    escape at the end is the key Esc."""
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
            name = named(sequence[0]) if sequence else "esc"
            found += [name] if name else []
            data = data[sequence.end() if sequence else 1 :]
        else:
            size = width(data[0])
            if len(data) < size and not all_there:
                break
            character = data[:size].decode(errors="replace")
            found += [SINGLE.get(character, character)]
            data = data[size:]
    return found, data


def named(sequence: bytes) -> str | None:
    """The key of an escape sequence, with or without Shift and the like."""
    text = sequence.decode("ascii")
    modified = re.sub(r"1?;\d+(?=[A-Z~])", "", text[2:])
    return ENDS.get(modified)


def width(first: int) -> int:
    """How many bytes the character has that begins with this one."""
    return 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
