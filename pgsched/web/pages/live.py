"""A page that follows the database: its live part, sent as server-sent events.

Events: `part` (the whole live part), `delta` (how to make it from the one before), `still` (nothing changed), `trouble`
(why nothing can be said). Each is one JSON value, so no text of a page can break the framing.

Invariant: a look that fails, for whatever reason, becomes a `trouble` event; the stream goes on and looks again.
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
from pgsched.web.pages.responses import Endpoint, Page, View, answer, explained, live_part, made

logger = log.get("web")
LIVE_S, MOST_LIVE = 600.0, 100
NO_LOAD = 10  # between two looks of a live page so many times what the look took
# Looks at once: the other connections of the pool are for whoever loads a page or presses a button.
LOOKS = 4
AGE = re.compile(r'( data-age)="[^"]*">[^<]*<')


def page(make: Page) -> Endpoint:
    """The endpoint of a page; asked for as an event stream it is live."""

    async def endpoint(request: Request) -> Response:
        if "text/event-stream" in request.headers.get("accept", ""):
            return Live(request, make)
        return await run_in_threadpool(answer, request, make)

    return endpoint


class Live(StreamingResponse):
    """The stream of one page. At most MOST_LIVE are open: one more is refused before it has begun."""

    def __init__(self, request: Request, make: Page) -> None:
        self._state = request.app.state
        self._packed = "gzip" in request.headers.get("accept-encoding", "")
        headers = {"X-Accel-Buffering": "no", "Vary": "Accept-Encoding"}
        headers |= {"Content-Encoding": "gzip"} if self._packed else {}
        events = packed(stream(request, make)) if self._packed else stream(request, make)
        super().__init__(events, media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._state.streams >= MOST_LIVE:
            refusal = JSONResponse({"error": "too many live pages"}, 503, {"Retry-After": "10"})
            return await refusal(scope, receive, send)
        self._state.streams += 1
        try:
            return await super().__call__(scope, receive, send)
        finally:
            self._state.streams -= 1


async def stream(request: Request, make: Page) -> AsyncIterator[bytes]:
    """Events until the browser goes, or for LIVE_S: then it comes back by itself and shows anew who it is."""
    state, begun, looks = request.app.state, time.monotonic(), Looks(request, make)
    yield b"retry: 1000\n\n"
    while time.monotonic() - begun < LIVE_S and not state.ending.is_set():
        started = time.monotonic()
        name, value, every_s = await to_thread.run_sync(looks.look, limiter=limiter(state))
        pause_s = max(every_s, NO_LOAD * (time.monotonic() - started))
        yield event(name, value, pause_s)
        try:
            await asyncio.wait_for(state.ending.wait(), pause_s)
        except TimeoutError:
            continue


def limiter(state: Any) -> CapacityLimiter:
    """Made in the event loop that uses it."""
    if state.looks is None:
        state.looks = CapacityLimiter(LOOKS)
    found: CapacityLimiter = state.looks
    return found


async def packed(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The events compressed, each of them complete when it is sent."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    async for one in events:
        yield packer.compress(one) + packer.flush(zlib.Z_SYNC_FLUSH)


class Looks:
    """The looks of one stream, and what the browser has."""

    def __init__(self, request: Request, make: Page) -> None:
        self._request, self._make = request, make
        self._sent: list[str] | None = None  # the lines that the browser has; None: it has none
        self._known = ""
        self._failed = ""

    def look(self) -> tuple[str, Any, float]:
        """One look: the event's name and value, and the seconds until the next."""
        every_s = self._request.app.state.settings.every_s
        try:
            text, asked_s = part(self._request, self._make)
        except (PgschedError, DatabaseError) as error:
            return "trouble", str(explained(self._request, error)), every_s
        except Exception as error:
            kind = type(error).__name__
            if kind != self._failed:  # said once a stream, not at every look
                self._failed = kind
                logger.error("a live page failed", path=self._request.url.path, exc_info=True)
            return "trouble", f"{kind}: this is a bug in pgsched; the console's log shows where", every_s
        self._failed = ""
        return *self.event(text), asked_s or every_s

    def event(self, text: str) -> tuple[str, Any]:
        """What the browser lacks. That an age has grown is nothing new: the browser counts by itself."""
        known = AGE.sub(r"\1><", text)
        if self._sent is not None and known == self._known:
            return "still", None
        before, lines = self._sent, text.split("\n")
        self._sent, self._known = lines, known
        return ("part", text) if before is None else ("delta", delta(before, lines))


def part(request: Request, make: Page) -> tuple[str, float | None]:
    """The live part now, and how often the page wants to be looked at. Raises whatever the page does."""
    view = made(request, make)
    if not isinstance(view, View):
        raise InputError("this page is not live")
    return live_part(request, view), view.every_s


def delta(before: list[str], lines: list[str]) -> list[Any]:
    """Lines as pieces: `[first, count]` of those before, or the text of new ones."""
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


def event(name: str, value: Any, pause_s: float) -> bytes:
    """An event as a browser reads it: `[value, seconds until the next]`."""
    text = json.dumps([value, round(pause_s, 2)], ensure_ascii=True, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n".encode()
