"""The console in tests: asked in this process, without a network."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the console's extra is not installed: pip install 'pgsched[web]'")

from starlette.testclient import TestClient

from pgsched.web.app import make
from pgsched.web.settings import Settings

TOKEN, READER = "a-token-of-the-operators", "a-token-for-those-who-look"


class Browser:
    """A client that keeps cookies, and sends forms as a page of the console would."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, **more: Any) -> Any:
        return self.client.get(path, follow_redirects=False, **more)

    def csrf(self, path: str = "/login") -> str:
        """The token of a page's forms."""
        found = re.search(r'name="csrf" (?:content|value)="([^"]+)"', self.get(path).text)
        assert found is not None
        return found[1]

    def post(self, path: str, form: dict[str, Any] | None = None, **headers: str) -> Any:
        """Send a form, and follow where it leads."""
        data = {"csrf": self.csrf()} | (form or {})
        return self.client.post(path, data=data, headers={"origin": "http://localhost"} | headers)


@pytest.fixture
def console(dsn: str) -> Iterator[Callable[..., Browser]]:
    """Starts consoles on the test's database."""
    with contextlib.ExitStack() as opened:

        def start(peer: str = "127.0.0.1", **settings: Any) -> Browser:
            app = make(Settings(dsn, **settings))
            client = TestClient(app, base_url="http://localhost", client=(peer, 50_000))
            return Browser(opened.enter_context(client))

        yield start


@pytest.fixture
def browser(console: Callable[..., Browser]) -> Browser:
    """A browser on a console without authentication."""
    return console()
