"""Fixture of the tests of graphs: an app on the test's database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgsched import App


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    made = App("graphs", dsn=dsn)
    yield made
    made.close()
