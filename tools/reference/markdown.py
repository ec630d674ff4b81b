"""Pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MADE = "<!-- Made from the code by `python -m tools.reference`. Do not edit: a test compares. -->"
SPAN = re.compile(r"(`[^`]*`)")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table. `|` in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]


def prose(text: str) -> str:
    """Text of the code as Markdown in one line: what is no code span shows its stars and angle brackets as they are."""
    parts = SPAN.split(" ".join(text.replace("``", "`").split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[])", r"\\\1", part) for part in parts)


def code(text: str) -> str:
    return f"`{text}`"


def page(title: str, *parts: Iterable[str]) -> str:
    """A page: its title, the notice, and its parts with an empty line between them."""
    blocks = [f"# {title}", MADE, *("\n".join(part) for part in parts)]
    return "\n\n".join(block for block in blocks if block) + "\n"
