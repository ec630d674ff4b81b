"""Pieces of Markdown: tables, code spans, escaped text, and whole pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MADE = "<!-- Made from the code by `python -m tools.reference`. Do not edit: a test compares. -->"
SPAN = re.compile(r"(`[^`]*`)")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table. `|` in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def prose(text: str) -> str:
    """Return text of the code as one line of Markdown; outside of code spans, stars and brackets are escaped."""
    parts = SPAN.split(" ".join(text.replace("``", "`").split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[])", r"\\\1", part) for part in parts)


def code(text: str) -> str:
    """Return the text as a code span."""
    return f"`{text}`"


def page(title: str, *parts: Iterable[str]) -> str:
    """Return a page: its title, a notice, and its parts, separated by empty lines."""
    blocks = [f"# {title}", MADE, *("\n".join(part) for part in parts)]
    return "\n\n".join(block for block in blocks if block) + "\n"
