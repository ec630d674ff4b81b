"""An app without a database, and a task whose calls are seen."""

from __future__ import annotations

from typing import Any

import pytest

from pgsched import App


@pytest.fixture
def app() -> App:
    """Return an app whose database cannot be reached."""
    return App("shop", dsn="host=127.0.0.1 port=1 connect_timeout=1")


@pytest.fixture
def seen() -> list[Any]:
    """Return the list to which `welcome` adds the arguments of each call."""
    return []


@pytest.fixture
def welcome(app: App, seen: list[Any]) -> Any:
    """Return a task in the queue `mail`."""

    @app.task(name="welcome", queue="mail", tags=["new"])
    def welcome(user: int, loud: bool = False) -> int:
        seen.append((user, loud))
        return user * 2

    return welcome
