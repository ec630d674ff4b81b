"""From the function of a page to an HTTP response: a page, or a change and where to go next.

Invariant: a page is a plain function of the request and a connection, and runs in a thread. The same function makes the
first answer and every later one that a live page gets.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.connection.failures import explain_error
from pgsched.db.queries.jobs import queues
from pgsched.errors import DatabaseUnreachable, InputError, PgschedError
from pgsched.web.api.errors import status_of
from pgsched.web.pages.rendering import DOTTED, ENVIRONMENT, path_segment
from pgsched.web.security.prefix import cookie_name, prefix_of
from pgsched.web.security.visitors import SAFE_METHODS, Visitor

MESSAGE_COOKIE = "pgsched_told"
MAX_MESSAGE = 800  # characters; the message travels in a cookie
WHOLE = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class View:
    """A template, and the values that it shows."""

    template: str
    values: dict[str, Any]
    status: int = 200
    every_s: float | None = None  # seconds between two looks of a live page; None: as in the settings
    pauses: Sequence[Row] = ()  # what is paused now; every page shows it


@dataclass(frozen=True, slots=True)
class Redirect:
    """A change that was made.

    `to`: where the browser goes next.
    `message`: the message that it shows there.
    `bad`: the message is about a failure.
    """

    to: str
    message: str = ""
    bad: bool = False


Page = Callable[[Request, Connection[Any]], View | Redirect | Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def change_endpoint(act: Page) -> Endpoint:
    """Return the endpoint of a change."""

    async def endpoint(request: Request) -> Response:
        return await run_in_threadpool(answer, request, act)

    return endpoint


def answer(request: Request, make: Page) -> Response:
    """Run the function of a page and return the response, or the page that explains the error.

    After a failed change the browser returns to the page with the button, which shows the error.
    """
    begun = time.perf_counter()
    found = run_page_safely(request, make)
    if isinstance(found, DatabaseUnreachable) and request.method == "GET":  # the pool's connections may have been old
        found = run_page_safely(request, make)
    if isinstance(found, PgschedError):
        # Show the error on the page with the button: here, a reload would send the form again.
        came = previous_page(request) if request.method == "POST" else None
        found = (
            error_view(found) if came is None else Redirect(came, f"That did not work: {found}"[:MAX_MESSAGE], bad=True)
        )
    response = found if isinstance(found, Response) else respond(request, found)
    response.headers["Server-Timing"] = f"total;dur={(time.perf_counter() - begun) * 1000:.1f}"
    return response


def run_page_safely(request: Request, make: Page) -> View | Redirect | Response | PgschedError:
    """Run the function of a page; return its result, or the error that it raised."""
    try:
        return run_page(request, make)
    except (PgschedError, DatabaseError) as error:
        return error_for_visitor(request, error)


def error_for_visitor(request: Request, raised: PgschedError | DatabaseError) -> PgschedError:
    """Return the error in words that this visitor may read.

    The address of the database, and the console's login there, are only for visitors that may change things.
    """
    error = explain_error(raised) if isinstance(raised, DatabaseError) else raised
    if isinstance(error, DatabaseUnreachable) and not request.state.visitor.may_write:
        return DatabaseUnreachable("the database cannot be reached; only visitors who may change things see why")
    return error


def run_page(request: Request, make: Page) -> View | Redirect | Response:
    """Run the function of a page on a connection from the pool; add what is paused to a View."""
    with connection(request) as conn:
        found = make(request, conn)
        return replace(found, pauses=queues.list_pauses(conn)) if isinstance(found, View) else found


@contextmanager
def connection(request: Request) -> Iterator[Connection[Any]]:
    """Yield a connection from the pool that makes changes in the visitor's name.

    Raises DatabaseUnreachable.
    """
    with request.app.state.pool.connection() as conn:
        conn.acting_for = (request.state.visitor.user or None) if request.method not in SAFE_METHODS else None
        try:
            yield conn
        finally:
            conn.acting_for = None


def respond(request: Request, found: View | Redirect) -> Response:
    """Return the response for a browser: a page, or a redirect with a message."""
    prefix = prefix_of(request)
    name, place = cookie_name(MESSAGE_COOKIE, prefix), prefix or "/"
    if isinstance(found, View):
        message = request.app.state.signer.unseal(MESSAGE_COOKIE, request.cookies.get(name, ""))
        response: Response = HTMLResponse(render(request, found, message), found.status)
        if message is not None:
            response.delete_cookie(name, place)
        return response
    response = RedirectResponse(found.to, 303)
    if found.message:
        sealed = request.app.state.signer.seal(MESSAGE_COOKIE, {"text": found.message, "bad": found.bad})
        response.set_cookie(name, sealed, max_age=60, path=place, httponly=True, samesite="strict")
    return response


def error_view(error: PgschedError) -> View:
    """Return the page that explains an error."""
    return View("error.html", {"error": str(error), "again": None}, status_of(error))


def render(request: Request, view: View, message: Mapping[str, Any] | None = None) -> str:
    """Return the HTML of the whole page; `message` is the message about the last change."""
    return ENVIRONMENT.get_template(view.template).render(template_values(request, view) | {"message": message})


def render_live_part(request: Request, view: View) -> str:
    """Return the HTML of the live part of the page: exactly the text that the whole page has there."""
    template = ENVIRONMENT.get_template(view.template)
    values = template.new_context(template_values(request, view) | {"message": None})
    paused = ENVIRONMENT.get_template("pauses.html").render(values)
    return paused + "".join(template.blocks["live"](values))


def template_values(request: Request, view: View) -> dict[str, Any]:
    """Return the values that every template can use, and the values of this page."""
    visitor: Visitor = request.state.visitor
    settings = request.app.state.settings
    shared = {"visitor": visitor, "csrf": visitor.csrf, "path": request.url.path, "asked": request.query_params,
              "root": prefix_of(request),
              "logs_in": settings.has_login, "pauses": view.pauses,
              "back": previous_page(request)}  # fmt: skip
    return shared | view.values


def previous_page(request: Request) -> str | None:
    """Return the page of this console that the request came from, without the prefix; None if there is no other."""
    prefix = prefix_of(request)
    try:
        came = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return None
    if came.netloc.lower() != request.headers.get("host", "").lower() or not came.path:
        return None
    if prefix and came.path != prefix and not came.path.startswith(f"{prefix}/"):
        return None  # a page of the application around the console
    path = came.path[len(prefix) :] or "/"
    place = path + (f"?{came.query}" if came.query else "")
    here = request.method == "GET" and path == request.url.path
    return None if here else local_path(place, "") or None


# ---- reading of requests


class RowId(Convertor[int]):
    """`{id:row}` in a path: the id of a row; a longer number is no address."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        """Return the id in the path."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Return the id as it stands in a path."""
        return str(value)


class JobName(Convertor[str]):
    """`{name:job}` at the end of a path: a job's name, as `path_segment` encodes it."""

    regex = ".*"

    def convert(self, value: str) -> str:
        """Return the job's name in the path."""
        return value[1:] if value.startswith("~") and DOTTED.fullmatch(value) else value

    def to_string(self, value: str) -> str:
        """Return the name as it stands in a path."""
        return path_segment(value)


register_url_convertor("row", RowId())
register_url_convertor("job", JobName())


def field_text(request: Request, name: str) -> str | None:
    """Return a field of the form, else of the URL, stripped; None if it is empty."""
    form: dict[str, list[str]] = request.state.form
    value = form[name][-1] if name in form else request.query_params.get(name)
    return value.strip() or None if value is not None else None


def field_integer(request: Request, name: str) -> int | None:
    """Return a field as a whole number; None if it is empty.

    Raises InputError for other texts.
    """
    text = field_text(request, name)
    if text is None:
        return None
    if not WHOLE.fullmatch(text):
        raise InputError(f'{name}: "{text[:100]}" is not a whole number', name)
    return int(text)


def field_row_id(request: Request, name: str, what: str) -> int | None:
    """Return a field as the id of a row; None if it is empty.

    `what`: what the row is (a run, a change), for the error.
    Raises InputError for other texts.
    """
    found = field_integer(request, name)
    if found is not None and not 0 < found < 2**63:
        raise InputError(f"{name}: is not the id of a {what}", name)
    return found


def local_path(path: str | None, otherwise: str) -> str:
    """Return `path` if it is an address on this console, else `otherwise`; never another site."""
    fine = path is not None and path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if fine and path is not None and "\\" not in path else otherwise


def job_url(name: str, verb: str = "") -> str:
    """Return the address of a job's page, or of the page for an action (`verb`) on the job."""
    return f"/job/{verb}/{path_segment(name)}" if verb else f"/jobs/{path_segment(name)}"
