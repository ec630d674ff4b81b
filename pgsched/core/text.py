"""Text for people, logs and rows: names that are spelt alike, figures, and what PostgreSQL can store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


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


def storable(text: str) -> str:
    """The same text with something to see in place of what PostgreSQL refuses: NUL characters and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def escaped(text: str) -> str:
    """The same text in ASCII, with escapes for the rest: for a database whose encoding has no place for it."""
    return text.encode("ascii", "backslashreplace").decode()


def log_line(text: str, fields: Mapping[str, Any]) -> str:
    """`text name=value ...`, with a newline at its end; values with spaces are quoted. One call is one line of output,
    whatever the values' own text does."""
    parts = [
        text if isinstance(text, str) else text_of(text),
        *(f"{name}={value_text(fields[name])}" for name in fields),
    ]
    return " ".join(parts) + "\n"


def value_text(value: Any) -> str:
    """The value as one word."""
    word = value if isinstance(value, str) else text_of(value)
    return word if word and word.isprintable() and not any(mark in word for mark in ' ="') else repr(word)


def text_of(value: Any) -> str:
    """The value's text; its type where it has none."""
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__}: its text raises {type(error).__name__}>"
