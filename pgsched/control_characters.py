"""Make text from others safe to show: control characters and invisible ones become escapes.

Invariant: text from others never reaches a terminal, a page, a log, an alert or a metric's label unchanged. A control
character could move the cursor or forge a line. A character that turns the writing direction, or cannot be seen, could
make one name pass for another.
"""

from __future__ import annotations

import re

# C0, DEL, C1, line separators; changes of the writing direction; invisible characters; surrogates
CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164"
    "\u2800\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ud800-\udfff]"
)
# Emoji, Persian, Indian and Chinese scripts need these joiners. After other letters they only hide.
JOINING = "\u200c\u200d" + "".join(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))
UNJOINED = re.compile("[\x00-\xa8\xaa-\xad\xaf-\u0530\u1e00-\u1fff]")  # Latin, Greek and Cyrillic; not (c) and (r)


def escape_controls(text: str, keep: str = "", *, in_json: bool = False) -> str:
    """Return the text with control and invisible characters as escapes (`\\x1b`), except for those in `keep`.

    `in_json`: the text is JSON, and stays the same JSON.
    """

    def escape(found: re.Match[str]) -> str:
        char, code = found[0], ord(found[0])
        if char in keep or (char in JOINING and is_joined(text, found.start())):
            return char
        if in_json:
            return json_escape(found)
        named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
        return named or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}")

    return CONTROL.sub(escape, text)


def json_escape(found: re.Match[str]) -> str:
    """Return the character that was found as JSON escapes it: `\\u001b`, or two of these."""
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def is_joined(text: str, at: int) -> bool:
    """Check whether the joiner at `at` follows a character that may be joined, directly or after one other joiner."""
    before = text[at - 1 : at] if at else ""
    if before and before in JOINING:
        before = text[at - 2 : at - 1] if at > 1 else ""
    return bool(before) and UNJOINED.match(before) is None and CONTROL.match(before) is None
