"""Sentences of the pages have at most 30 words (the rule is 25).

ALLOWED counts the longer sentences of older pages. These counts may only shrink.
"""

from __future__ import annotations

import re

from tests.support.docs.reading import LINKED, read

MOST_WORDS = 30
ALLOWED = {
    "docs/how-to/dependencies.md": 1,
    "docs/how-to/executors.md": 4,
    "docs/how-to/handlers.md": 4,
    "docs/how-to/monitoring.md": 1,
    "docs/how-to/operations.md": 8,
    "docs/how-to/security.md": 6,
    "docs/how-to/tracing.md": 1,
    "docs/concepts/chaos.md": 3,
    "docs/concepts/figures.md": 20,
    "docs/concepts/performance.md": 16,
    "docs/reference/cli.md": 1,
    "docs/reference/sql.md": 2,
    "bench/README.md": 1,
}
HISTORY = ("CHANGELOG.md", "docs/adr/")  # history is not rewritten


def sentences(name: str) -> list[str]:
    """Return the sentences of a page's paragraphs and lists. A span of code counts as one word."""
    paragraphs, lines = [""], read(name).prose
    for _, line in lines:
        text = line.strip()
        if not text or text.startswith(("|", "#", "<!--", "![")) or re.match(r"\[[\w-]+\]: ", text):
            paragraphs.append("")
        elif re.match(r"([-*]|\d+\.) ", text):
            paragraphs.append(text)
        else:
            paragraphs[-1] += f" {text}"
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", text)) for text in paragraphs)
    return [one for text in plain for one in re.split(r"(?<=[.!?:])(?:\*\*)?\s+(?=[\w*\[X(\"])", text.strip()) if one]


def test_sentences_are_short() -> None:
    pages = [name for name in LINKED if not name.startswith(HISTORY)]
    long = {name: len([one for one in sentences(name) if len(one.split()) > MOST_WORDS]) for name in pages}
    assert {name: count for name, count in long.items() if count > ALLOWED.get(name, 0)} == {}, "split them"
    assert {name: long[name] for name, most in ALLOWED.items() if long[name] < most} == {}, "allow no more than these"


def test_a_page_is_split_into_sentences() -> None:
    found = sentences("README.md")
    assert len(found) > 50
    assert any(len(one.split()) < 6 for one in found)
