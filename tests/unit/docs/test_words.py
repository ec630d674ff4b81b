"""The pages use one word for one thing: the glossary is in order, and banned words do not occur."""

from __future__ import annotations

import re

import pytest

from tests.support.docs.reading import PAGES, read
from tests.support.paths import ROOT

GLOSSARY = "docs/concepts/glossary.md"
WORDS = re.findall(r"^\| \*\*([^*]+)\*\* \| \S", (ROOT / GLOSSARY).read_text(), re.MULTILINE)
# banned words, and what to write instead
INSTEAD = {
    r"\b(he|his|him|himself)\b": "you, or the noun",
    r"\blet go\b": "admitted, released",
    r"\bborn\b": "created",
    r"\bheld back\b": "waiting",
    r"\bslots of (the|a) worker\b|\bworkers? (has|have) slots\b": "places",
    r"\bso many\b.*\bso many\b": "N",
}


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    assert len(WORDS) >= 30
    assert sorted({*WORDS}) == WORDS


def test_the_glossary_has_the_bold_words_of_the_overview() -> None:
    overview = (ROOT / "docs/concepts/overview.md").read_text()
    bold = {word.lower() for word in re.findall(r"\*\*(\w[\w -]*)\*\*", overview)}
    roles = {"ticker": "tick", "reaper": "reap", "pruner": "retention", "zombie": "fence", "one clock": "leader"}
    assert {
        word for word in bold if roles.get(word, word.removesuffix("s")) not in WORDS and word not in WORDS
    } == set()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_banned_words(name: str) -> None:
    found = [
        f"{name}:{number}: {match[0]!r}: say {word}"
        for number, line in read(name).prose
        for pattern, word in INSTEAD.items()
        if (match := re.search(pattern, re.sub(r"`[^`]*`", "", line)))
    ]
    assert found == []
