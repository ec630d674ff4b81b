"""Each timeline in docs/concepts/policies.md shows what the real leader does."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.docs.reading import read
from tests.support.docs.timelines import SCENES, draw


def drawn() -> dict[str, str]:
    """Return the timelines of the page by their first line."""
    texts = [block.text for block in read("docs/concepts/policies.md").blocks if block.language == "text"]
    return {text.partition("\n")[0]: text.partition("\n")[2] for text in texts if "10:00" in text}


@pytest.mark.few(2)
@pytest.mark.parametrize("title", SCENES)
def test_the_timeline_is_what_happens(title: str, db: psycopg.Connection[Any], dsn: str) -> None:
    found = draw(db, dsn, SCENES[title])
    assert drawn().get(title) == found, f"\n{title}\n{found}"


def test_every_timeline_is_replayed() -> None:
    assert drawn().keys() == SCENES.keys()
