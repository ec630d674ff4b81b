"""From a function of one module to a response: a page, the same page live, or a change and where to go next.

The rule: a page is a plain function of the request and a connection. It runs in a thread, and the same function makes
the page's first answer and every later one that the browser is sent while it looks.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import explain
from pgsched.errors import DatabaseReadOnly, DatabaseUnreachable, InputError, NotFound, NotPermitted, PgschedError
from pgsched.web.pages.rendering import ENVIRONMENT
from pgsched.web.security.guard import Visitor

TOLD = "pgsched_told"
WHOLE = re.compile(r"-?[0-9]{1,19}")
LIVE_S, MOST_LIVE = 600.0, 100
NO_LOAD = 10  # between two looks of a live page so many times what the look took


@dataclass(frozen=True, slots=True)
class View:
    """A template with what it shows."""

    template: str
    values: dict[str, Any]
    status: int = 200
    every_s: float | None = None  # how often a live page is looked at again; None: as the settings say


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was made: where the browser goes next, and what it is told there."""

    to: str
    told: str = ""
    bad: bool = False
    cookies: dict[str, str | None] = field(default_factory=dict)


Page = Callable[[Request, Connection[Any]], View | Done | Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def page(make: Page) -> Endpoint:
    """The endpoint of a page; asked for as an event stream it is live."""

    async def endpoint(request: Request) -> Response:
        if "text/event-stream" in request.headers.get("accept", ""):
            return live(request, make)
        return await run_in_threadpool(answer, request, make)

    return endpoint


def action(act: Page) -> Endpoint:
    """The endpoint of a change."""

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(answer, request, act)

    return endpoint


def answer(request: Request, make: Page) -> Response:
    """What a function comes to, or the page that says why it did not."""
    begun = time.perf_counter()
    found = tried(request, make)
    if isinstance(found, DatabaseUnreachable) and request.method == "GET":  # the pool's connections were old ones
        found = tried(request, make)
    if isinstance(found, PgschedError):
        found = failed(found)
    response = found if isinstance(found, Response) else respond(request, found)
    response.headers["Server-Timing"] = f"total;dur={(time.perf_counter() - begun) * 1000:.1f}"
    return response


def tried(request: Request, make: Page) -> View | Done | Response | PgschedError:
    """What a function comes to, or the error that it ended with."""
    try:
        with request.app.state.pool.connection() as conn:
            return make(request, conn)
    except (PgschedError, DatabaseError) as error:
        return explain(error) if isinstance(error, DatabaseError) else error


def respond(request: Request, found: View | Done) -> Response:
    """The response to a browser."""
    if isinstance(found, View):
        told = request.app.state.signer.unseal(TOLD, request.cookies.get(TOLD, ""))
        response: Response = HTMLResponse(render(request, found, told), found.status)
        if told is not None:
            response.delete_cookie(TOLD)
        return response
    response = RedirectResponse(found.to, 303)
    if found.told:
        sealed = request.app.state.signer.seal(TOLD, {"text": found.told, "bad": found.bad})
        response.set_cookie(TOLD, sealed, max_age=60, httponly=True, samesite="strict")
    return response


def failed(error: PgschedError) -> View:
    """The page that says what went wrong."""
    return View("error.html", {"error": str(error), "what": type(error).__name__}, status_of(error))


def status_of(error: PgschedError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, InputError):
        return 422
    if isinstance(error, NotPermitted):
        return 403
    return 503 if isinstance(error, (DatabaseUnreachable, DatabaseReadOnly)) else 500


def render(request: Request, view: View, told: Mapping[str, Any] | None = None) -> str:
    """The whole page."""
    return ENVIRONMENT.get_template(view.template).render(context(request, view) | {"told": told})


def context(request: Request, view: View) -> dict[str, Any]:
    """What every template may use."""
    visitor: Visitor = request.state.visitor
    settings = request.app.state.settings
    shared = {"visitor": visitor, "csrf": visitor.csrf, "path": request.url.path, "asked": request.query_params,
              "logs_in": settings.logs_in}  # fmt: skip
    return shared | view.values


# ---- live


def live(request: Request, make: Page) -> Response:
    """The page's live part, sent again whenever it has changed."""
    state = request.app.state
    if state.streams >= MOST_LIVE:
        return Response("too many live pages", 503)
    return StreamingResponse(stream(request, make), media_type="text/event-stream")


async def stream(request: Request, make: Page) -> AsyncIterator[bytes]:
    """Events until the browser goes, or for LIVE_S: then it comes back by itself and shows anew who it is."""
    state, sent, begun = request.app.state, "", time.monotonic()
    state.streams += 1
    try:
        while time.monotonic() - begun < LIVE_S and not state.ending.is_set():
            started = time.monotonic()
            name, text, every_s = await run_in_threadpool(look, request, make)
            if f"{name}{text}" != sent:
                sent = f"{name}{text}"
                yield event(name, text)
            else:
                yield b": still here\n\n"
            pause = max(every_s, NO_LOAD * (time.monotonic() - started))
            try:
                await asyncio.wait_for(state.ending.wait(), pause)
            except TimeoutError:
                continue
    finally:
        state.streams -= 1


def look(request: Request, make: Page) -> tuple[str, str, float]:
    """One look: the event's name and text, and the seconds until the next."""
    every_s = request.app.state.settings.every_s
    try:
        with request.app.state.pool.connection() as conn:
            view = make(request, conn)
    except (PgschedError, DatabaseError) as error:
        return "trouble", str(explain(error) if isinstance(error, DatabaseError) else error), every_s
    if not isinstance(view, View):
        return "trouble", "this page is not live", LIVE_S
    template = ENVIRONMENT.get_template(view.template)
    made = template.new_context(context(request, replace(view)) | {"told": None})
    return "part", "".join(template.blocks["live"](made)), view.every_s or every_s


def event(name: str, text: str) -> bytes:
    """An event as a browser reads it."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines()) or "data:\n"
    return f"event: {name}\n{lines}\n".encode()


# ---- what pages read of a request


def given(request: Request, name: str) -> str | None:
    """A field of the form or of the URL, stripped; None where it is empty."""
    form: dict[str, list[str]] = request.state.form
    value = form[name][-1] if name in form else request.query_params.get(name)
    return value.strip() or None if value is not None else None


def number(request: Request, name: str) -> int | None:
    """A field that is a whole number. Raises InputError."""
    text = given(request, name)
    if text is None:
        return None
    if not WHOLE.fullmatch(text):
        raise InputError(f'{name}: "{text[:100]}" is not a whole number', name)
    return int(text)


def an_id(request: Request, name: str, what: str) -> int | None:
    """A field that is the id of a run or the like. Raises InputError."""
    found = number(request, name)
    if found is not None and not 0 < found < 2**63:
        raise InputError(f"{name}: is not the id of a {what}", name)
    return found


def local(path: str | None, otherwise: str) -> str:
    """A place on this console to go to; never another site."""
    fine = path is not None and path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if fine and path is not None and "\\" not in path else otherwise


def job_url(name: str, verb: str = "") -> str:
    """The page of a job, or of something to do with it."""
    return f"/job/{verb}/{quote(name, safe='')}" if verb else f"/jobs/{quote(name, safe='')}"
