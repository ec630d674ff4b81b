"""The console inside an application of FastAPI or Starlette: who gets in, what stays below its path, and its end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from pgsched import App
from pgsched.contrib.starlette import ConsoleUser, mount_console
from pgsched.errors import DatabaseUnreachable, InputError
from tests.support.paths import ROOT
from tests.support.waiting import wait_until
from tests.support.web.console import READER, TOKEN, Browser, one

ORIGIN = {"origin": "http://localhost"}
SECRET = "0123456789abcdefghijklmnopqrstuvwxyz"


def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@pytest.fixture
def mounted(dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    """A function that mounts a console in an application and returns a browser for it."""
    monkeypatch.setenv("PGSCHED_HOME", str(tmp_path))
    clients: list[TestClient] = []

    def start(application: Any = None, path: str = "/jobs", **options: Any) -> Browser:
        application = application or Starlette(routes=[Route("/", hello)])
        mount_console(application, path, database=dsn, **options)
        clients.append(TestClient(application, base_url="http://localhost"))
        clients[-1].__enter__()
        return Browser(clients[-1])

    yield start
    for client in clients:
        client.__exit__(None, None, None)


def ask(browser: Browser, **more: Any) -> Any:
    return browser.get("/jobs/runs", **more)


# ---- who gets in


@pytest.mark.parametrize("kind", ["plain", "async", "object"])
def test_a_user_whom_the_application_names_is_an_operator(
    mounted: Callable[..., Browser], db: psycopg.Connection, kind: str
) -> None:
    class Object:
        async def __call__(self, request: Request) -> str | None:
            return request.headers.get("x-me")

    async def later(request: Request) -> str | None:
        return request.headers.get("x-me")

    functions = {"plain": lambda request: request.headers.get("x-me"), "async": later, "object": Object()}
    browser = mounted(auth=functions[kind])
    assert ask(browser).status_code == 403
    assert browser.get("/").text == "hello"
    page = ask(browser, headers={"x-me": "ada"})
    assert page.status_code == 200 and "ada" in page.text and "Log out" not in page.text
    token = re.search(r'name="csrf" content="([^"]+)"', page.text)
    assert token is not None
    form = {"csrf": token[1], "what": "all"}
    done = browser.client.post("/jobs/pauses/begin", data=form, headers={"x-me": "ada"} | ORIGIN)
    assert done.status_code == 200
    assert one(db, "SELECT paused_by FROM pgsched.pauses") == "ada"


def test_a_viewer_only_looks(mounted: Callable[..., Browser], db: psycopg.Connection) -> None:
    browser = mounted(auth=lambda request: ConsoleUser("bob", "viewer"))
    page = ask(browser)
    assert "read only" in page.text
    token = re.search(r'name="csrf" content="([^"]+)"', page.text)
    assert token is not None
    form = {"csrf": token[1], "what": "all"}
    assert browser.client.post("/jobs/pauses/begin", data=form, headers=ORIGIN).status_code == 403
    assert one(db, "SELECT count(*) FROM pgsched.pauses") == 0


@pytest.mark.parametrize("answer", [None, "", False, True, 1, {"name": "ada"}, ConsoleUser("")])
def test_only_a_name_or_a_user_lets_somebody_in(mounted: Callable[..., Browser], answer: Any) -> None:
    browser = mounted(auth=lambda request: answer)
    for path in ("/jobs/", "/jobs/runs", "/jobs/login", "/jobs/api/openapi.json", "/jobs/api/v1/status"):
        assert browser.get(path).status_code == 403, path
    assert browser.get("/jobs/api/v1/status").json()["error"]["code"] == "forbidden"
    assert browser.get("/jobs/runs", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 403


@pytest.mark.long
def test_wrong_tokens_of_others_lock_nobody_out_whom_the_application_lets_in(
    mounted: Callable[..., Browser],
) -> None:
    """Behind a load balancer all of them come from one address."""

    def check(request: Request) -> str | None:
        return "ada" if request.headers.get("authorization") == "Bearer right" else None

    browser = mounted(auth=check)
    wrong = {browser.get("/jobs/api/v1/status", headers={"authorization": "Bearer x"}).status_code for _ in range(70)}
    right = [browser.get("/jobs/api/v1/status", headers={"authorization": "Bearer right"}) for _ in range(70)]
    assert wrong == {403} and {answer.status_code for answer in right} == {200}


def test_an_error_of_the_function_lets_nobody_in(dsn: str) -> None:
    def broken(request: Request) -> str:
        raise RuntimeError("the directory is down")

    application = Starlette()
    mount_console(application, "/jobs", auth=broken, database=dsn)
    client = TestClient(application, base_url="http://localhost", raise_server_exceptions=False)
    assert client.get("/jobs/runs").status_code == 500


def test_the_application_may_answer_itself(mounted: Callable[..., Browser]) -> None:
    def to_login(request: Request) -> str:
        raise HTTPException(303, headers={"Location": "/login"})

    answer = ask(mounted(auth=to_login))
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


def test_a_program_gets_the_application_s_refusal_as_json(mounted: Callable[..., Browser]) -> None:
    def refuse(request: Request) -> str:
        raise HTTPException(401, "your session has ended", headers={"WWW-Authenticate": "Bearer"})

    answer = mounted(auth=refuse).get("/jobs/api/v1/status")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == ("unauthorized", "your session has ended")


def test_the_function_sees_the_request_of_the_application(mounted: Callable[..., Browser]) -> None:
    seen: list[Any] = []

    def look(request: Request) -> str:
        seen.append((request.app, request.url.path, request.cookies.get("session")))
        return "ada"

    application = Starlette()
    browser = mounted(application, auth=look)
    browser.client.cookies.set("session", "theirs")
    ask(browser)
    assert seen[-1] == (application, "/jobs/runs", "theirs")


def test_without_a_function_or_a_secret_nothing_is_mounted(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "READER_TOKEN", "PRODUCER_TOKEN", "PASSWORD_HASH"):
        monkeypatch.delenv(f"PGSCHED_WEB_{name}", raising=False)
    application = Starlette()
    with pytest.raises(InputError, match="would be open to all"):
        mount_console(application, "/jobs", database=dsn)
    with pytest.raises(InputError, match="would be open to all"):
        mount_console(application, "/jobs", database=dsn, producer_token=TOKEN)
    with pytest.raises(InputError, match="replaces tokens"):
        mount_console(application, "/jobs", database=dsn, auth=lambda _: "ada", token=TOKEN)
    with pytest.raises(InputError, match="path of its own"):
        mount_console(application, "/", database=dsn, token=TOKEN)
    with pytest.raises(InputError, match="32 characters"):
        mount_console(application, "/jobs", database=dsn, token=TOKEN, secret="short")
    assert application.routes == []


def test_the_console_s_own_login_works_below_the_path(
    mounted: Callable[..., Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSCHED_WEB_TOKEN", TOKEN)
    browser = mounted(reader_token=READER)
    assert ask(browser).headers["location"] == "/jobs/login?next=%2Fruns"
    form = {"csrf": browser.csrf("/jobs/login"), "secret": TOKEN, "next": "/runs"}
    answer = browser.client.post("/jobs/login", data=form, headers=ORIGIN, follow_redirects=False)
    assert answer.headers["location"] == "/jobs/runs"
    assert ask(browser).status_code == 200


# ---- changes


def test_a_form_without_the_page_s_token_changes_nothing(
    mounted: Callable[..., Browser], db: psycopg.Connection
) -> None:
    browser = mounted(auth=lambda request: "ada")
    ask(browser)
    for form, headers in (
        ({"what": "all"}, ORIGIN),
        ({"what": "all", "csrf": "x"}, ORIGIN),
        ({"what": "all", "csrf": browser.csrf("/jobs/runs")}, {"origin": "http://evil.example"}),
    ):
        assert browser.client.post("/jobs/pauses/begin", data=form, headers=headers).status_code == 403
    assert browser.client.post("/jobs/api/v1/pauses", json={"what": "all"}).status_code == 403
    assert one(db, "SELECT count(*) FROM pgsched.pauses") == 0
    bearer = {"authorization": "Bearer theirs"}
    assert browser.client.post("/jobs/api/v1/pauses", json={"what": "all"}, headers=bearer).status_code == 200


def test_processes_with_one_secret_accept_each_other_s_forms(dsn: str) -> None:
    clients = []
    for _ in range(2):
        application = Starlette()
        mount_console(application, "/jobs", auth=lambda request: "ada", database=dsn, secret=SECRET)
        clients.append(TestClient(application, base_url="http://localhost"))
    first, second = (Browser(client) for client in clients)
    token = first.csrf("/jobs/queues")
    second.client.cookies = first.client.cookies
    answer = second.client.post("/jobs/pauses/begin", data={"csrf": token, "what": "all"}, headers=ORIGIN)
    assert answer.status_code == 200


# ---- paths


@pytest.mark.parametrize("root", ["", "/api"], ids=["at-the-root", "behind-a-prefix"])
@pytest.mark.parametrize("stripped", [False, True], ids=["whole-path", "stripped-path"])
def test_the_path_of_the_server_around_counts(dsn: str, root: str, *, stripped: bool) -> None:
    """Servers differ in whether the path of a request includes their own root path."""
    application = Starlette()
    mount_console(application, "/jobs", auth=lambda request: "ada", database=dsn)

    async def around(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            path = scope["path"] if stripped else root + scope["path"]
            scope = scope | {"root_path": root, "path": path}
        await application(scope, receive, send)

    page = TestClient(around, base_url="http://localhost").get("/jobs/runs")
    assert page.status_code == 200
    links = set(re.findall(r'href="(/[^"#]*)"', page.text))
    assert links and all(link.startswith(f"{root}/jobs/") for link in links), links
    assert f"Path={root}/jobs;" in page.headers["set-cookie"]


def test_fastapi_takes_the_console(mounted: Callable[..., Browser]) -> None:
    fastapi = pytest.importorskip("fastapi")
    application = fastapi.FastAPI()

    @application.get("/hello")
    def greet() -> str:
        return "hello"

    browser = mounted(application, "/internal/jobs", auth=lambda request: "ada")
    assert browser.get("/hello").json() == "hello"
    assert browser.get("/internal/jobs/").status_code == 200
    assert "/internal/jobs" not in browser.get("/openapi.json").text


def test_an_application_of_another_framework_is_refused_with_another_way() -> None:
    litestar = pytest.importorskip("litestar")
    with pytest.raises(InputError, match=r"got a Litestar: .*pgsched web --root-path") as refused:
        mount_console(litestar.Litestar([]), "/jobs", auth=lambda request: "ada")
    assert refused.value.field == "application"


def test_the_database_is_that_of_the_app(dsn: str) -> None:
    application = Starlette()
    mount_console(application, "/jobs", auth=lambda request: "ada", database=App("shop", dsn=dsn))
    assert TestClient(application, base_url="http://localhost").get("/jobs/healthz").status_code == 200


def test_a_missing_database_is_an_error_at_the_start_and_not_at_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGSCHED_DSN", "DATABASE_URL", "PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    application = Starlette()
    mount_console(application, "/jobs", auth=lambda request: "ada")
    with pytest.raises(DatabaseUnreachable, match="give database="), TestClient(application):
        pass


def test_a_web_socket_is_refused(mounted: Callable[..., Browser]) -> None:
    browser = mounted(auth=lambda request: "ada")
    with pytest.raises(WebSocketDisconnect) as refused, browser.client.websocket_connect("/jobs/runs"):
        pass
    assert refused.value.code == 1000


# ---- the end


@pytest.mark.long
def test_an_application_that_starts_again_has_a_console_that_works(dsn: str, db: psycopg.Connection) -> None:
    run_id = one(db, "SELECT pgsched.enqueue('t')")
    application = Starlette()
    mount_console(application, "/jobs", auth=lambda request: "ada", database=dsn, secret=SECRET)
    for _ in range(2):
        with TestClient(application, base_url="http://localhost") as client:
            assert client.get("/jobs/runs").status_code == 200
            begun = time.monotonic()
            assert client.get(f"/jobs/api/v1/runs/{run_id}?wait=1").status_code == 200
            assert time.monotonic() - begun > 0.9, "the console waits for the run, as long as it was asked to"


PROGRAM = """
import sys
from starlette.applications import Starlette
from pgsched.contrib.starlette import mount_console
app = Starlette()
mount_console(app, "/jobs", auth=lambda request: "ada", database=sys.argv[1])
import uvicorn
server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="info"))
server.run()
"""


@pytest.mark.long
def test_the_end_of_the_server_ends_open_streams(dsn: str, tmp_path: Path) -> None:
    said = tmp_path / "log"
    with said.open("w") as log, subprocess.Popen([sys.executable, "-c", PROGRAM, dsn], cwd=ROOT, stderr=log) as process:
        try:
            found = wait_until(lambda: re.search(r"running on (http://\S+)", said.read_text()), 60, "the address")
            asked = urllib.request.Request(f"{found[1]}/jobs/", headers={"Accept": "text/event-stream"})
            with urllib.request.urlopen(asked, timeout=30) as stream:
                assert stream.readline() == b"retry: 1000\n"
                process.send_signal(signal.SIGTERM)
                stream.read()  # to its regular end, which a stream that is cut off does not have
            process.wait(15)
        finally:
            process.kill()
    assert "Traceback" not in said.read_text() and "Application shutdown complete" in said.read_text()
