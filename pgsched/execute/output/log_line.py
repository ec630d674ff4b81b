"""The rule: one call is one line of output, whatever its values' own text does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def log_line(text: str, fields: Mapping[str, Any]) -> str:
    """`text name=value ...`, with a newline at its end; values with spaces are quoted."""
    parts = [text if isinstance(text, str) else shown(text), *(f"{name}={value_text(fields[name])}" for name in fields)]
    return " ".join(parts) + "\n"


def value_text(value: Any) -> str:
    """The value as one word."""
    word = value if isinstance(value, str) else shown(value)
    return word if word and word.isprintable() and not any(mark in word for mark in ' ="') else repr(word)


def shown(value: Any) -> str:
    """The value's text; its type where it has none."""
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__}: its text raises {type(error).__name__}>"
