"""An app on the test's database, and a task of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pgsched import App


@pytest.fixture
def app(dsn: str) -> Iterator[App]:
    app = App(dsn=dsn)
    yield app
    app.close()


@pytest.fixture
def greet(app: App) -> Any:
    @app.task(name="t")
    def greet(name: str) -> None: ...

    return greet
