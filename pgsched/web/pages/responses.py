"""From a function of one module to a response: a page, or a change and where to go next.

The rule: a page is a plain function of the request and a connection. It runs in a thread, and the same function makes
the page's first answer and every later one that the browser is sent while it looks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import explain
from pgsched.db.queries.jobs import queues
from pgsched.errors import DatabaseReadOnly, DatabaseUnreachable, InputError, NotFound, NotPermitted, PgschedError
from pgsched.web.pages.rendering import DOTTED, ENVIRONMENT, segment
from pgsched.web.security.visitors import SAFE, Visitor

TOLD = "pgsched_told"
MOST_TOLD = 800  # characters; a cookie takes it there
WHOLE = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class View:
    """A template with what it shows."""

    template: str
    values: dict[str, Any]
    status: int = 200
    every_s: float | None = None  # how often a live page is looked at again; None: as the settings say
    pauses: Sequence[Row] = ()  # what is paused now, which every page says


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was made: where the browser goes next, and what it is told there."""

    to: str
    told: str = ""
    bad: bool = False
    cookies: dict[str, str | None] = field(default_factory=dict)


Page = Callable[[Request, Connection[Any]], View | Done | Response]
Endpoint = Callable[[Request], Awaitable[Response]]


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
        # What a reload would send again is left: the page on which the button was says what went wrong.
        came = back_of(request) if request.method == "POST" else None
        found = failed(found) if came is None else Done(came, f"That did not work: {found}"[:MOST_TOLD], bad=True)
    response = found if isinstance(found, Response) else respond(request, found)
    response.headers["Server-Timing"] = f"total;dur={(time.perf_counter() - begun) * 1000:.1f}"
    return response


def tried(request: Request, make: Page) -> View | Done | Response | PgschedError:
    """What a function comes to, or the error that it ended with."""
    try:
        return made(request, make)
    except (PgschedError, DatabaseError) as error:
        return explained(request, error)


def explained(request: Request, raised: PgschedError | DatabaseError) -> PgschedError:
    """The error, in the words that this visitor may read. Only visitors who may change things are told the database's
    address and the console's login there."""
    error = explain(raised) if isinstance(raised, DatabaseError) else raised
    if isinstance(error, DatabaseUnreachable) and not request.state.visitor.may_write:
        return DatabaseUnreachable("the database cannot be reached: why, is shown to who may change things")
    return error


def made(request: Request, make: Page) -> View | Done | Response:
    """What a function comes to, on a connection of its own; a page also says what is paused."""
    with connection(request) as conn:
        found = make(request, conn)
        return replace(found, pauses=queues.list_pauses(conn)) if isinstance(found, View) else found


@contextmanager
def connection(request: Request) -> Iterator[Connection[Any]]:
    """A connection that changes things in the name of who asks. Raises DatabaseUnreachable."""
    with request.app.state.pool.connection() as conn:
        conn.acting_for = (request.state.visitor.user or None) if request.method not in SAFE else None
        try:
            yield conn
        finally:
            conn.acting_for = None


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
    return View("error.html", {"error": str(error), "again": None}, status_of(error))


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


def live_part(request: Request, view: View) -> str:
    """What the live part of the page holds: exactly the text that the whole page has there."""
    template = ENVIRONMENT.get_template(view.template)
    values = template.new_context(context(request, view) | {"told": None})
    paused = ENVIRONMENT.get_template("pauses.html").render(values)
    return paused + "".join(template.blocks["live"](values))


def context(request: Request, view: View) -> dict[str, Any]:
    """What every template may use."""
    visitor: Visitor = request.state.visitor
    settings = request.app.state.settings
    shared = {"visitor": visitor, "csrf": visitor.csrf, "path": request.url.path, "asked": request.query_params,
              "logs_in": settings.logs_in, "pauses": view.pauses,
              "back": back_of(request)}  # fmt: skip
    return shared | view.values


def back_of(request: Request) -> str | None:
    """The page of this console that the request came from."""
    try:
        came = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return None
    if came.netloc.lower() != request.headers.get("host", "").lower() or not came.path:
        return None
    place = came.path + (f"?{came.query}" if came.query else "")
    here = request.method == "GET" and came.path == request.url.path
    return None if here else local(place, "") or None


# ---- what pages read of a request


class RowId(Convertor[int]):
    """`{id:row}` in a path: a number that a row can have. A longer one is the address of nothing."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


class JobName(Convertor[str]):
    """`{name:job}` at the end of a path: what `segment` made of a job's name."""

    regex = ".*"

    def convert(self, value: str) -> str:
        return value[1:] if value.startswith("~") and DOTTED.fullmatch(value) else value

    def to_string(self, value: str) -> str:
        return segment(value)


register_url_convertor("row", RowId())
register_url_convertor("job", JobName())


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
    return f"/job/{verb}/{segment(name)}" if verb else f"/jobs/{segment(name)}"
