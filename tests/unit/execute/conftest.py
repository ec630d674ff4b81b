"""What the unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.answering import Server, answer, serving


@pytest.fixture
def server() -> Iterator[Server]:
    """A web server on loopback that answers "/" with fine."""
    with serving() as started:
        started.answers["/"] = answer(body="fine")
        yield started
