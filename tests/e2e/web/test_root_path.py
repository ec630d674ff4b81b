"""Below a path (`pgsched web --root-path /jobs`), every address of the console begins with that path."""

from __future__ import annotations

import html
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from pgsched.errors import InputError
from pgsched.web.app import make_console
from pgsched.web.settings import Settings
from tests.support.paths import ROOT
from tests.support.web.console import TOKEN, Browser
from tests.support.web.oddities import build

PREFIX = "/ops/jobs"
BEGINNINGS = (
    "/",
    "/jobs",
    "/runs",
    "/queues",
    "/workers",
    "/locks",
    "/alerts",
    "/audit",
    "/doctor",
    "/job/new",
    "/runs/0",
    "/x",
)
ADDRESS = re.compile(r'\b(?:href|src|action|data-preview)="([^"]*)"')


@pytest.fixture
def below(dsn: str) -> Iterator[Callable[..., Browser]]:
    """A function that starts a console below PREFIX; the browser asks for full paths."""
    clients = []

    def start(**settings: Any) -> Browser:
        clients.append(TestClient(make_console(Settings(dsn, root_path=PREFIX, **settings)), "http://localhost"))
        return Browser(clients[-1])

    yield start
    for client in clients:
        client.app.app.state.pool.close()  # type: ignore[attr-defined]


@pytest.mark.long
def test_every_address_on_every_page_is_below_the_path(below: Callable[..., Browser], db: psycopg.Connection) -> None:
    build(db)
    browser = below()
    todo, seen = deque(PREFIX + path for path in BEGINNINGS), set[str]()
    asked = 0
    while todo and asked < 120:
        path, asked = todo.popleft(), asked + 1
        answer = browser.get(path)
        assert answer.status_code < 500, path
        for found in ADDRESS.findall(answer.text):
            address = html.unescape(found)
            assert address.startswith((f"{PREFIX}/", "#")), (path, address)
            kind = re.sub(r"[0-9]+|=[^&]*", "*", address.partition("#")[0])
            if kind not in seen and "/log" not in address:
                seen.add(kind)
                todo.append(address.partition("#")[0])
    assert asked > 80


def test_templates_name_no_address_without_the_path() -> None:
    wrong = [
        f"{path.name}: {found}"
        for path in (ROOT / "pgsched/web/templates").glob("*.html")
        for found in ADDRESS.findall(path.read_text())
        if not found.startswith(("{{ root }}", "{{ here }}", "#"))
    ]
    assert wrong == []


def test_logins_redirects_and_cookies_stay_below_the_path(below: Callable[..., Browser]) -> None:
    browser = below(token=TOKEN)
    answer = browser.get(f"{PREFIX}/runs?state=dead")
    assert answer.headers["location"] == f"{PREFIX}/login?next=%2Fruns%3Fstate%3Ddead"
    form = {"csrf": browser.csrf(f"{PREFIX}/login"), "secret": TOKEN, "next": "/runs?state=dead"}
    origin = {"origin": "http://localhost"}
    answer = browser.client.post(f"{PREFIX}/login", data=form, headers=origin, follow_redirects=False)
    assert answer.headers["location"] == f"{PREFIX}/runs?state=dead"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("pgsched_session.ops.jobs=") and f"Path={PREFIX};" in cookie
    page = browser.get(f"{PREFIX}/queues")
    csrf = {"csrf": browser.csrf(f"{PREFIX}/queues")}
    assert page.status_code == 200
    answer = browser.client.post(f"{PREFIX}/pauses/begin", data=csrf | {"what": "all"}, headers=origin,
                                 follow_redirects=False)  # fmt: skip
    assert answer.headers["location"] == f"{PREFIX}/queues"
    assert f"Path={PREFIX};" in answer.headers["set-cookie"]
    assert "Everything is paused" in browser.get(f"{PREFIX}/queues").text
    answer = browser.client.post(f"{PREFIX}/logout", data=csrf, headers=origin, follow_redirects=False)
    assert answer.headers["location"] == f"{PREFIX}/login" and f"Path={PREFIX};" in answer.headers["set-cookie"]


def test_after_a_failed_change_the_browser_returns_below_the_path(below: Callable[..., Browser]) -> None:
    browser = below()
    token = {"csrf": browser.csrf(f"{PREFIX}/jobs")}
    headers = {"origin": "http://localhost", "referer": f"http://localhost{PREFIX}/jobs?state=paused"}
    post = browser.client.post
    answer = post(f"{PREFIX}/job/pause/none", data=token, headers=headers, follow_redirects=False)
    assert answer.headers["location"] == f"{PREFIX}/jobs?state=paused"
    headers["referer"] = "http://localhost/another/page"
    assert post(f"{PREFIX}/job/pause/none", data=token, headers=headers, follow_redirects=False).status_code == 404


def test_the_api_gives_addresses_below_the_path(below: Callable[..., Browser]) -> None:
    browser = below()
    assert browser.get(f"{PREFIX}/api/openapi.json").json()["servers"] == [{"url": PREFIX}]
    answer = browser.client.post(f"{PREFIX}/api/v1/runs", json={"task": "t"})
    assert answer.headers["location"] == f"{PREFIX}/api/v1/runs/{answer.json()['id']}"
    assert browser.get(answer.headers["location"]).status_code == 200


def test_a_slash_too_much_leads_to_the_page(below: Callable[..., Browser]) -> None:
    browser = below()
    assert browser.get(f"{PREFIX}/runs/").headers["location"] == f"{PREFIX}/runs"
    assert browser.get(f"{PREFIX}//evil.example/").status_code == 404
    assert browser.get(PREFIX).status_code == 200


@pytest.mark.parametrize("path", ["/", "/runs", "/ops", "/ops/jobsx", "/ops/jobsx/runs", "/api/v1/status", "/healthz"])
def test_nothing_is_served_beside_the_path(below: Callable[..., Browser], path: str) -> None:
    answer = below().get(path)
    assert answer.status_code == 404 and f"{PREFIX}/" in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_no_header_moves_the_console(console: Callable[..., Browser]) -> None:
    shown = {
        "x-forwarded-prefix": "/evil",
        "x-script-name": "/evil",
        "x-forwarded-path": "/evil",
        "x-original-url": "/x",
    }
    page = console().get("/runs", headers=shown)
    assert page.status_code == 200 and "/evil" not in page.text and "/evil" not in str(page.headers)


def test_two_consoles_of_one_host_have_cookies_of_their_own() -> None:
    names = {Settings("", root_path=path).cookie(path) for path in ("", "/a", "/a/b", "/a-b", "/b")}
    assert len(names) == 5
    assert Settings("", https=True).cookie("/a").startswith("__Secure-")
    assert Settings("", https=True).cookie("").startswith("__Host-")


@pytest.mark.parametrize(
    "path", ["jobs", "//evil.example", "/a//b", "/a b", "/a?b", "/..", "/a/../b", '/"', "/é", "/;"]
)
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="root path"):
        Settings("", root_path=path)


def test_a_slash_at_the_end_of_the_path_does_not_count() -> None:
    assert Settings("", root_path="/jobs/").root_path == "/jobs"
    assert Settings("", root_path="/").root_path == ""
