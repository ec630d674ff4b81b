"""Live pages: the live part of a page follows the database as a stream of server-sent events.

Each event is one JSON value, so that no text of a page can break the framing:

- `read_live_part`: the whole live part.
- `line_delta`: how to make the live part from the one before.
- `still`: nothing has changed.
- `trouble`: why there are no new figures.

Invariant: a look at the database that fails, for whatever reason, becomes a `trouble` event. The stream goes on and
looks again.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
import zlib
from collections.abc import AsyncIterator
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pgsched import log
from pgsched.db.connection.connect import DatabaseError
from pgsched.errors import InputError, PgschedError
from pgsched.web.pages.responses import Endpoint, Page, View, answer, error_for_visitor, render_live_part, run_page

logger = log.get("web")
MOST_LIVE = 100
PAUSE_FACTOR = 10  # after a look, pause at least this many times as long as the look took
# Looks at the same time: the other connections of the pool are for page loads and buttons.
LOOKS = 4
AGE = re.compile(r'( data-age)="[^"]*">[^<]*<')


def page(make: Page) -> Endpoint:
    """Return the endpoint of a page; a request for an event stream gets the live page."""

    async def endpoint(request: Request) -> Response:
        if "text/event-stream" in request.headers.get("accept", ""):
            return LiveStream(request, make)
        return await run_in_threadpool(answer, request, make)

    return endpoint


class LiveStream(StreamingResponse):
    """The event stream of one page.

    At most MOST_LIVE streams are open: one more is refused before it begins.
    """

    def __init__(self, request: Request, make: Page) -> None:
        self._state = request.app.state
        self._packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"X-Accel-Buffering": "no", "Vary": "Accept-Encoding"}
        headers |= {"Content-Encoding": "gzip"} if self._packed else {}
        events = compress_events(live_events(request, make)) if self._packed else live_events(request, make)
        super().__init__(events, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, or refuse it if too many are open."""
        if self._state.streams >= MOST_LIVE:
            refusal = JSONResponse({"error": "too many live pages"}, 503, {"Retry-After": "10"})
            return await refusal(scope, receive, send)
        self._state.streams += 1
        try:
            return await super().__call__(scope, receive, send)
        finally:
            self._state.streams -= 1


async def live_events(request: Request, make: Page) -> AsyncIterator[bytes]:
    """Yield events until the browser leaves, for at most `stream_s` seconds of the settings.

    The browser then connects again by itself, and authenticates anew.
    """
    state, begun, looks = request.app.state, time.monotonic(), Looks(request, make)
    yield b"retry: 1000\n\n"
    while time.monotonic() - begun < state.settings.stream_s and not state.ending.is_set():
        started = time.monotonic()
        name, value, every_s = await to_thread.run_sync(looks.look, limiter=limiter(state))
        pause_s = max(every_s, PAUSE_FACTOR * (time.monotonic() - started))
        yield encode_event(name, value, pause_s)
        try:
            await asyncio.wait_for(state.ending.wait(), pause_s)
        except TimeoutError:
            continue


def limiter(state: Any) -> CapacityLimiter:
    """Return the limiter of looks, made in the event loop that uses it."""
    if state.looks is None:
        state.looks = CapacityLimiter(LOOKS)
    found: CapacityLimiter = state.looks
    return found


async def compress_events(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the events compressed, each of them complete."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    async for one in events:
        yield packer.compress(one) + packer.flush(zlib.Z_SYNC_FLUSH)


class Looks:
    """The looks of one stream at the database, and the text that the browser has."""

    def __init__(self, request: Request, make: Page) -> None:
        self._request, self._make = request, make
        self._browser_lines: list[str] | None = None  # the lines that the browser has; None before the first event
        self._browser_text = ""
        self._failed = ""

    def look(self) -> tuple[str, Any, float]:
        """Look once; return the event's name and value, and the seconds until the next look."""
        every_s = self._request.app.state.settings.every_s
        try:
            text, asked_s = read_live_part(self._request, self._make)
        except (PgschedError, DatabaseError) as error:
            return "trouble", str(error_for_visitor(self._request, error)), every_s
        except Exception as error:
            kind = type(error).__name__
            if kind != self._failed:  # logged when the error begins, not at every look
                self._failed = kind
                logger.error("a live page failed", path=self._request.url.path, exc_info=True)
            return "trouble", f"{kind}: this is a bug in pgsched; the console's log shows where", every_s
        self._failed = ""
        return *self.event(text), asked_s or every_s

    def event(self, text: str) -> tuple[str, Any]:
        """Return the event that brings the browser up to date.

        An age that has grown is not a change, because the browser counts ages by itself.
        """
        known = AGE.sub(r"\1><", text)
        if self._browser_lines is not None and known == self._browser_text:
            return "still", None
        before, lines = self._browser_lines, text.split("\n")
        self._browser_lines, self._browser_text = lines, known
        return ("part", text) if before is None else ("delta", line_delta(before, lines))


def read_live_part(request: Request, make: Page) -> tuple[str, float | None]:
    """Return the HTML of the live part, and the seconds between two looks that the page asks for.

    Raises the errors of the page.
    """
    view = run_page(request, make)
    if not isinstance(view, View):
        raise InputError("this page is not live")
    return render_live_part(request, view), view.every_s


def line_delta(before: list[str], lines: list[str]) -> list[Any]:
    """Return the lines as pieces: `[first, count]` for lines of `before`, a text for new lines."""
    places: dict[str, int] = {}
    for n, line in enumerate(before):
        places.setdefault(line, n)
    pieces: list[Any] = []
    for line in lines:
        last = pieces[-1] if pieces else None
        if isinstance(last, list):
            following = last[0] + last[1]
            if following < len(before) and before[following] == line:
                last[1] += 1
                continue
        place = places.get(line)
        if place is not None:
            pieces.append([place, 1])
        elif isinstance(last, str):
            pieces[-1] = f"{last}\n{line}"
        else:
            pieces.append(line)
    return pieces


def encode_event(name: str, value: Any, pause_s: float) -> bytes:
    """Return an event as a browser reads it, with the data `[value, seconds until the next]`."""
    text = json.dumps([value, round(pause_s, 2)], ensure_ascii=True, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode()
