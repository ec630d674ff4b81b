"""An app on the test's database, and a task of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from pgsched import App
from tests.db.passing import off_the_hour


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


@pytest.fixture(autouse=True)
def no_full_hour(request: pytest.FixtureRequest) -> None:
    """Tests in which time passes have jobs that are due at full hours."""
    if hasattr(request.module, "pass_time"):
        time.sleep(off_the_hour(time.time()))
