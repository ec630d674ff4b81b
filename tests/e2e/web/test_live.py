"""Live pages: the content of events, and that no failed reading of the database ends a stream."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from starlette.requests import Request

from pgsched.web.pages import live, overview, runs
from pgsched.web.pages.live import Looks, encode_event, line_delta
from pgsched.web.pages.responses import View
from pgsched.web.security.secrets import new_session
from pgsched.web.security.visitors import Visitor
from tests.support.web.console import Browser, one

pytestmark = pytest.mark.packages


@pytest.fixture
def request_of(browser: Browser) -> Callable[..., Request]:
    """A function that makes a request for a path of the console."""

    def asked(path: str, **params: Any) -> Request:
        app: Any = browser.client.app
        visitor = Visitor("write", "", new_session("write"), "x")
        scope = {"type": "http", "app": app.app, "method": "GET", "path": path, "query_string": b"", "headers": [],
                 "path_params": params, "state": {"visitor": visitor, "form": {}}}  # fmt: skip
        return Request(scope)

    return asked


def shown(before: list[str], name: str, value: Any) -> list[str]:
    """Return the lines that the browser has after an event."""
    if name == "part":
        return str(value).split("\n")
    if name == "still":
        return before
    lines: list[str] = []
    for piece in value:
        lines += piece.split("\n") if isinstance(piece, str) else before[piece[0] : piece[0] + piece[1]]
    return lines


def test_events_bring_the_same_text_as_the_page_itself(
    request_of: Callable[..., Request], browser: Browser, db: psycopg.Connection
) -> None:
    looks = Looks(request_of("/runs"), runs.index)
    name, before, _ = looks.look()
    assert name == "part" and f">{before}</div>" in browser.get("/runs").text, "not a blank may differ"
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('fresh.task')")
    name, pieces, _ = looks.look()
    assert name == "delta" and "fresh.task" in json.dumps(pieces) and "<html" not in json.dumps(pieces)
    _, whole, _ = Looks(request_of("/runs"), runs.index).look()
    assert live.AGE.sub("<", "\n".join(shown(before.split("\n"), name, pieces))) == live.AGE.sub("<", whole)


def test_passing_time_alone_sends_no_change(request_of: Callable[..., Request], db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task, created_at) VALUES ('t', now() - interval '1 hour')")
    db.execute("INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
               " VALUES ('w:1', 'w', 1, '0', 1, '{task}', '{t}', '1 min')")  # fmt: skip
    looks = Looks(request_of("/runs"), runs.index)
    assert [looks.look()[0] for _ in range(3)] == ["part", "still", "still"]


@pytest.mark.parametrize(
    "progress",
    ['{"done": 3, "attempt": 1}', '{"done": 3, "total": 40, "attempt": 1}', '{"attempt": 1}', '"half"', "[1]",
     '{"done": "x", "total": {}}'],
)  # fmt: skip
def test_the_page_of_a_run_is_shown_whatever_its_progress_holds(
    browser: Browser, db: psycopg.Connection, progress: str
) -> None:
    run_id = one(db, "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id")
    db.execute("UPDATE pgsched.runs SET state = 'running', attempt = 1, started_at = now(), token = gen_random_uuid(),"
               " lease_until = now() + interval '1 h', progress = %s::jsonb WHERE id = %s",
               [progress, run_id])  # fmt: skip
    answer = browser.get(f"/runs/{run_id}")
    assert answer.status_code == 200
    assert ("<progress" in answer.text) == ('"done": 3' in progress)


def test_a_failed_reading_is_reported_and_the_stream_goes_on(
    request_of: Callable[..., Request], db: psycopg.Connection
) -> None:
    fails = [True]

    def sometimes(request: Request, conn: psycopg.Connection) -> View:
        if fails.pop():
            raise KeyError("total")
        return runs.index(request, conn)

    looks = Looks(request_of("/runs"), sometimes)
    name, text, _ = looks.look()
    assert name == "trouble" and "KeyError: this is a bug in pgsched" in text
    fails.append(False)
    assert looks.look()[0] == "part"


def test_a_live_page_says_that_the_database_is_gone(request_of: Callable[..., Request]) -> None:
    def broken(request: Request, conn: psycopg.Connection) -> View:
        conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        raise AssertionError

    name, text, _ = Looks(request_of("/x"), broken).look()
    assert name == "trouble" and "cannot reach the database" in text


def test_an_event_is_one_line_whatever_the_page_holds() -> None:
    text = "a\nb\r\n\n\x85\u2028c\ud800"
    sent = encode_event("part", text, 2.0)
    assert sent.startswith(b"event: part\ndata: ") and sent.count(b"\n") == 3 and b"\r" not in sent
    assert json.loads(sent.split(b"data: ")[1]) == [text, 2.0]


@pytest.mark.parametrize(
    ("before", "after"), [("", "a"), ("a\nb\nc", "a\nx\nc"), ("a\na\nb", "b\na\na\n\na"), ("a\nb\nc\nd", "b\nc\nd\ne")]
)
def test_a_delta_turns_the_old_text_into_the_new_one(before: str, after: str) -> None:
    assert shown(before.split("\n"), "delta", line_delta(before.split("\n"), after.split("\n"))) == after.split("\n")


def test_unchanged_lines_are_not_sent_again() -> None:
    before = [f"line {n} of many, which is rather long" for n in range(1000)]
    assert len(json.dumps(line_delta(before, [*before[1:], "new"]))) < 40


async def opened(app: Any, over: asyncio.Event, *headers: tuple[bytes, bytes]) -> tuple[int, dict[bytes, bytes], bytes]:
    """Request a stream that stays open until `over` is set. Return its answer up to the first event."""
    got: dict[str, Any] = {"body": b""}
    begun_ = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            got.update(status=message["status"], headers=dict(message["headers"]))
        got["body"] += message.get("body", b"")
        if len(got["body"]) > 100 or got["status"] != 200:
            begun_.set()

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": "/runs",
             "query_string": b"", "client": ("127.0.0.1", 1), "server": ("localhost", 80),
             "headers": [(b"host", b"localhost"), (b"accept", b"text/event-stream"), *headers]}  # fmt: skip
    task = asyncio.create_task(app(scope, receive, send))
    await asyncio.wait_for(begun_.wait(), 30)
    if over.is_set():
        await task
    return got["status"], got["headers"], got["body"]


async def ended(app: Any) -> None:
    """Wait until all streams have ended, and drop what belongs to this event loop."""
    while app.app.state.streams:  # noqa: ASYNC110 - the console has no event for it
        await asyncio.sleep(0.01)
    app.app.state.looks = None


def test_the_number_of_open_streams_is_limited(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_LIVE", 3)
    app: Any = browser.client.app

    async def main() -> list[int]:
        over = asyncio.Event()
        answers = await asyncio.gather(*(opened(app, over) for _ in range(8)))
        over.set()
        await ended(app)
        return sorted(status for status, _, _ in answers)

    assert asyncio.run(main()) == [200] * 3 + [503] * 5


def test_a_stream_is_compressed_for_clients_that_accept_it(browser: Browser) -> None:
    app: Any = browser.client.app

    async def main() -> tuple[int, dict[bytes, bytes], bytes]:
        over = asyncio.Event()
        found = await opened(app, over, (b"accept-encoding", b"gzip, br"))
        over.set()
        await ended(app)
        return found

    _, headers, body = asyncio.run(main())
    assert headers[b"content-encoding"] == b"gzip"
    assert b"event: part" in zlib.decompressobj(31).decompress(body)


def test_an_unchanged_overview_sends_almost_nothing(request_of: Callable[..., Request], db: psycopg.Connection) -> None:
    request = request_of("/")
    sent = 0
    looks = Looks(request, overview.overview)
    looks.look()
    for _ in range(3):
        name, value, every_s = looks.look()
        sent += len(encode_event(name, value, every_s))
    assert sent < 2000


def test_pages_are_compressed_and_files_are_sent_once(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) SELECT 'job ' || n, 't', '0 2 * * *'"
               " FROM generate_series(1, 50) n")  # fmt: skip
    page = browser.get("/jobs")
    assert page.headers["content-encoding"] == "gzip" and int(page.headers["content-length"]) < len(page.text) / 4
    assert browser.get("/static/morph.js").headers["content-type"].startswith("text/javascript")
    file = browser.get("/static/live.js")
    again = browser.get("/static/live.js", headers={"if-none-match": file.headers["etag"]})
    assert (file.status_code, again.status_code, again.content) == (200, 304, b"")
