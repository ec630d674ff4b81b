"""An app whose own database cannot be reached, and a task whose calls are seen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pgsched import App


@pytest.fixture
def app() -> App:
    return App("shop", dsn="host=127.0.0.1 port=1 connect_timeout=1")


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def welcome(app: App, seen: list[Any]) -> Any:
    @app.task(name="welcome")
    async def welcome(user: int) -> None:
        await asyncio.sleep(0)
        seen.append(user)
        if user < 0:
            raise ValueError(f"no user {user}")

    return welcome
