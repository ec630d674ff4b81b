"""Fixtures of the console's tests: consoles that are called in this process, without a network."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the console's extra is not installed: pip install 'pgsched[web]'")

from starlette.testclient import TestClient

from pgsched.web.app import make_console
from pgsched.web.settings import Settings
from tests.support.web.console import Browser


@pytest.fixture
def console(dsn: str) -> Iterator[Callable[..., Browser]]:
    """A function that starts a console on the test's database and returns a browser for it."""
    with contextlib.ExitStack() as opened:

        def start(peer: str = "127.0.0.1", **settings: Any) -> Browser:
            app = make_console(Settings(dsn, **settings))
            client = TestClient(app, base_url="http://localhost", client=(peer, 50_000))
            return Browser(opened.enter_context(client))

        yield start


@pytest.fixture
def browser(console: Callable[..., Browser]) -> Browser:
    """A browser on a console without authentication."""
    return console()
