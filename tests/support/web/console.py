"""Ask the web console in the test's own process."""

from __future__ import annotations

import html
import re
from typing import Any

import psycopg
from starlette.testclient import TestClient

TOKEN, READER = "a-token-of-the-operators", "a-token-for-those-who-look"
JOB = "INSERT INTO pgsched.jobs (name, task, schedule, timezone) VALUES (%s, 't', '30 2 * * *', 'Europe/Berlin')"


class Browser:
    """A client that keeps cookies, and sends forms as a page of the console does."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, **more: Any) -> Any:
        return self.client.get(path, follow_redirects=False, **more)

    def csrf(self, path: str = "/login") -> str:
        """Return the CSRF token of a page's forms."""
        found = re.search(r'name="csrf" (?:content|value)="([^"]+)"', self.get(path).text)
        assert found is not None
        return found[1]

    def post(self, path: str, form: dict[str, Any] | None = None, **headers: str) -> Any:
        """Send a form, and follow redirects."""
        data = {"csrf": self.csrf()} | (form or {})
        return self.client.post(path, data=data, headers={"origin": "http://localhost"} | headers)


def one(db: psycopg.Connection, question: str, *given: Any) -> Any:
    row = db.execute(question.encode(), given).fetchone()
    return row and row[0]


def edited(browser: Browser, path: str) -> dict[str, str]:
    """Return the fields of the form at this path, as a browser would send them unchanged."""
    return form_of(browser.get(path).text)


def form_of(text: str) -> dict[str, str]:
    """Return the fields of the form in this page's HTML, as a browser would send them unchanged."""
    found = dict(re.findall(r'<input name="(\w+)" value="([^"]*)"', text))
    found |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>([^<]*)<', text))
    found |= dict(re.findall(r'<select name="(\w+)">.*?<option selected>(\w+)', text))
    seen = re.search(r'name="seen" value="([^"]*)"', text)
    assert seen is not None
    return {name: html.unescape(value) for name, value in found.items()} | {"seen": html.unescape(seen[1])}
