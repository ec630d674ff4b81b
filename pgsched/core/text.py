"""The rule: text that others wrote never reaches a terminal or a log as it is. Control characters, which could move the
cursor or forge a line, are shown as escapes."""

from __future__ import annotations

import re
from collections.abc import Iterable

# C0, DEL, C1, line separators, and the bidirectional overrides that show text in another order
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str, keep: str = "") -> str:
    """The text with control characters as escapes (`\\x1b`), but for those in `keep`."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(found[0])
        return found[0] if found[0] in keep else named or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")

    return CONTROL.sub(escape, text)


def similar(word: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that somebody who wrote `word` may have meant: the same in other letters, the whole of
    which it is the end (`touch` of `app.touch`), or spelt alike."""
    import difflib

    names = list(dict.fromkeys(known))
    same = [name for name in names if name.lower() == word.lower() or name.endswith((f".{word}", f"/{word}"))]
    small = {name.lower(): name for name in names}
    alike = [small[name] for name in difflib.get_close_matches(word.lower(), small, cutoff=0.7)]
    return [name for name in dict.fromkeys([*same, *alike]) if name != word][:3]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: `; did you mean app.touch?`, or nothing."""
    found = similar(word, known) if len(word) <= 200 else []
    return f"; did you mean {' or '.join(found)}?" if found else ""


def figure(value: float) -> str:
    """A number for people: three digits that count, and no exponent; from 100 on whole, with thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return f"{value:.3f}" if "e" in text else text
