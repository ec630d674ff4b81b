"""Text for people, logs and rows: similar names, formatted numbers, log lines, and text that PostgreSQL can store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def similar_names(word: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that a person who wrote `word` may have meant.

    A name matches if it differs only in upper and lower case, ends in `word` (`touch` for `app.touch`), or is spelt
    similarly.
    """
    import difflib

    names = list(dict.fromkeys(known))
    same = [name for name in names if name.lower() == word.lower() or name.endswith((f".{word}", f"/{word}"))]
    small = {name.lower(): name for name in names}
    alike = [small[name] for name in difflib.get_close_matches(word.lower(), small, cutoff=0.7)]
    return [name for name in dict.fromkeys([*same, *alike]) if name != word][:3]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: `; did you mean app.touch?`, or an empty string."""
    found = similar_names(word, known) if len(word) <= 200 else []
    return f"; did you mean {' or '.join(found)}?" if found else ""


def format_number(value: float) -> str:
    """Format a number for people: three significant digits, no exponent.

    From 100 on: a whole number with thousands separators.
    """
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return f"{value:.3f}" if "e" in text else text


def replace_unstorable(text: str) -> str:
    """Return the text with visible replacements for what PostgreSQL refuses: NUL characters and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def escape_non_ascii(text: str) -> str:
    """Return the text in ASCII with escapes, for a database whose encoding lacks some characters."""
    return text.encode("ascii", "backslashreplace").decode()


def format_log_line(text: str, fields: Mapping[str, Any]) -> str:
    """Format `text name=value ...` with a newline at its end; values with spaces are quoted.

    One call always gives one line of output, because line breaks in values are escaped.
    """
    parts = [
        text if isinstance(text, str) else text_of(text),
        *(f"{name}={value_text(fields[name])}" for name in fields),
    ]
    return " ".join(parts) + "\n"


def value_text(value: Any) -> str:
    """Format a value as one word, quoted if needed."""
    word = value if isinstance(value, str) else text_of(value)
    return word if word and word.isprintable() and not any(mark in word for mark in ' ="') else repr(word)


def text_of(value: Any) -> str:
    """Return the value's text; a note with its type where `str()` fails."""
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__}: its text raises {type(error).__name__}>"
