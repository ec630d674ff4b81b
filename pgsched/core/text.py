"""The rule: text that others wrote never reaches a terminal or a log as it is. Control characters, which could move the
cursor or forge a line, are shown as escapes."""

from __future__ import annotations

import re

# C0, DEL, C1, line separators, and the bidirectional overrides that show text in another order
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str, keep: str = "") -> str:
    """The text with control characters as escapes (`\\x1b`), but for those in `keep`."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(found[0])
        return found[0] if found[0] in keep else named or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")

    return CONTROL.sub(escape, text)
