"""A crawl of the console on a database with odd rows: links are followed, and no page has a bug."""

from __future__ import annotations

import html
import json
import re
from collections import deque
from urllib.parse import parse_qs, unquote

import psycopg
import pytest
from starlette.routing import Match

from pgsched.control_characters import CONTROL
from pgsched.web.routes import ROUTES
from tests.support.web.console import Browser, one
from tests.support.web.oddities import build

BEGINNINGS = (
    *("/", "/jobs", "/runs", "/queues", "/workers", "/locks", "/alerts", "/audit", "/doctor", "/job/new", "/?range=1y"),
    *("/runs?job=nobody", "/runs?since=never", "/runs?state=odd", "/runs/0", f"/runs/{'9' * 18}", "/jobs/nobody"),
    *(f"/runs/{'9' * 5000}", "/api/openapi.json", "/api/v1/jobs", "/api/v1/runs", "/api/v1/status", "/api/v1/audit"),
    *(f"/api/v1/runs/{'9' * 19}", f"/api/v1/runs/{'9' * 4000}", "/runs?before=99999999999999999999", "/audit?before=x"),
)


def alike(path: str) -> str:
    """Return the path without its dates: the days of one calendar count as one page."""
    return re.sub(r"[0-9]{4}-[0-9]{2}(-[0-9]{2})?", "D", path)


def kind(path: str) -> tuple[str, ...]:
    """Return the route of a path and the names of its parameters, without the row and the values."""
    place, _, asked = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": unquote(place)}
    route = next((one.path for one in ROUTES if one.matches(scope)[0] is Match.FULL), "")  # type: ignore[attr-defined]
    return (route, *sorted(parse_qs(asked, keep_blank_values=True)))


def problems(path: str, status: int, text: str) -> list[str]:
    """Return what is wrong with an answer: a server error, or a control character that a browser would obey."""
    shown = re.sub(r'value="[^"]*"|<textarea[^>]*>[^<]*', "", text).replace("\n", "").replace("\t", "")
    found = [f"{path[:200]}: {status} {re.sub('<[^>]*>', ' ', text)[-300:]}"] if status >= 500 else []
    return found + [f"{path[:200]}: {one[0]!r}" for one in [CONTROL.search(shown)] if one]


@pytest.mark.parametrize("most", [100, pytest.param(600, marks=pytest.mark.long)])
def test_every_page_of_an_odd_database_is_shown(most: int, browser: Browser, db: psycopg.Connection) -> None:
    """Request at most `most` addresses, the first of each kind before others of that kind."""
    build(db)
    todo, seen, kinds = deque(BEGINNINGS), {alike(path) for path in BEGINNINGS}, {kind(path) for path in BEGINNINGS}
    wrong: list[str] = []
    asked = 0
    while todo and asked < most:
        path = todo.popleft()
        asked += 1
        answer = browser.get(path)
        wrong += problems(path, answer.status_code, answer.text)
        for link in re.findall(r'href="(/[^"]*)"', answer.text):
            target = html.unescape(link).partition("#")[0]
            if alike(target) not in seen and not target.endswith("/log"):
                seen.add(alike(target))
                todo.append(target) if kind(target) in kinds else todo.appendleft(target)
                kinds.add(kind(target))
    assert wrong == [], wrong[:20]
    assert asked == most or asked > 200, asked


def test_json_that_python_cannot_read_is_marked_as_unreadable(browser: Browser, db: psycopg.Connection) -> None:
    build(db)
    run_id = one(db, "SELECT id FROM pgsched.runs WHERE length(args::text) > 5000 LIMIT 1")
    assert "cannot be read" in browser.get(f"/runs/{run_id}").text
    found = browser.get(f"/api/v1/runs/{run_id}")
    assert found.status_code == 200 and "cannot be read" in json.dumps(found.json())


def test_a_long_output_says_that_only_its_end_is_shown(browser: Browser, db: psycopg.Connection) -> None:
    build(db)
    run_id = one(db, "SELECT max(run_id) FROM pgsched.run_logs")
    text = browser.get(f"/runs/{run_id}").text
    assert "Only the end is shown" in text and len(text) < 600_000
