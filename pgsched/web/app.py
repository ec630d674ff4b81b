"""The console as an ASGI application: its routes, its state, and its answers to errors."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from pgsched.db.connection.pool import Pool
from pgsched.services.charts import RANGES, Recent
from pgsched.web import routes
from pgsched.web.api.errors import status_error
from pgsched.web.api.waiting import WaitingRequests
from pgsched.web.pages.depth import Depths, record_depths
from pgsched.web.pages.doctor import Diagnosis
from pgsched.web.pages.responses import View, local_path, render
from pgsched.web.security import login
from pgsched.web.security.guesses import MAX_LOGIN_GUESSES, MAX_TOKEN_GUESSES, Guesses
from pgsched.web.security.keys import EndedSessions, key_of
from pgsched.web.security.request_guard import Guard, is_api
from pgsched.web.security.secrets import Signer
from pgsched.web.security.visitors import VisitorRecognition
from pgsched.web.settings import Settings

CONNECTIONS, TIMEOUT_S = 8, 10.0
# Statistics of a queue table are always stale: a plan made from them would read the whole history.
SESSION = {"enable_seqscan": "off", "jit": "off"}
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def make_console(settings: Settings, ending: asyncio.Event | None = None) -> Guard:
    """Build the console behind its guard.

    `ending`: event streams end once it is set; the application sets it when it ends.
    """
    app = Starlette(
        routes=[Route("/static/{name}", serve_static), Route("/healthz", healthz), *login.ROUTES, *routes.ROUTES],
        exception_handlers={HTTPException: answer_http_error, Exception: answer_bug},
        lifespan=lifespan,
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)],
    )
    app.state.settings = settings
    app.state.signer = Signer(settings.signing_key or key_of(settings.home))
    app.state.ended = EndedSessions(settings.home and settings.home / "web.ended")
    app.state.pool = Pool(settings.dsn, size=CONNECTIONS, purpose="web", timeout_s=TIMEOUT_S, settings=SESSION)
    app.state.depths = Depths()
    app.state.recent = {span: Recent(span) for span in RANGES}
    app.state.diagnosis = Diagnosis(settings.dsn)
    app.state.guesses, app.state.bearers = Guesses(MAX_LOGIN_GUESSES), Guesses(MAX_TOKEN_GUESSES)
    app.state.streams = 0
    app.state.looks = None
    app.state.hashing, app.state.hash_lock = 0, None
    app.state.ending = ending or asyncio.Event()
    app.state.waiting = WaitingRequests(settings.dsn, app.state.ending)
    app.router.redirect_slashes = False  # its redirects would lose the prefix; see answer_http_error
    return Guard(app, settings, VisitorRecognition(settings, app.state.signer, app.state.ended), error_response)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Record the depth of the queues while the application runs; at its end, close the connections."""
    noting = asyncio.create_task(record_depths(app.state.pool, app.state.depths))
    try:
        yield
    finally:
        app.state.ending.set()
        noting.cancel()
        app.state.waiting.close()
        app.state.pool.close()


def serve_static(request: Request) -> Response:
    """Serve a file of the folder `static` of the package."""
    name = request.path_params["name"]
    file = files("pgsched.web") / "static" / name
    kind = TYPES.get(name.rpartition(".")[2])
    if kind is None or "/" in name or "\\" in name or not file.is_file():
        raise HTTPException(404)
    content = file.read_bytes()
    headers = {"Cache-Control": "no-cache", "ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}
    if request.headers.get("if-none-match", "").removeprefix("W/") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


def healthz(request: Request) -> Response:
    """Tell a probe whether the console reaches its database, and nothing else."""
    try:
        with request.app.state.pool.connection() as conn:
            conn.execute("SELECT 1")
    except Exception:
        return JSONResponse({"ok": False}, 503)
    return JSONResponse({"ok": True})


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Answer a request for an unknown page, or with a method that the page does not take.

    A page's address with a slash too much leads to the page.
    """
    assert isinstance(error, HTTPException)
    path = request.url.path
    shorter = local_path(path.rstrip("/"), "") if path.endswith("/") and not is_api(path) else ""
    if error.status_code == 404 and request.method == "GET" and shorter:
        return RedirectResponse(shorter, 307)
    return error_response(request, error.status_code, error.detail, dict(error.headers or {}))


async def answer_bug(request: Request, error: Exception) -> Response:
    """Answer after an unexpected error.

    starlette raises the error again, so that its traceback goes to the log.
    """
    return error_response(
        request, 500, f"{type(error).__name__}: this is a bug in pgsched; the console's log shows where", {}
    )


def error_response(
    request: Request, status: int, text: str, headers: dict[str, str], again: dict[str, list[str]] | None = None
) -> Response:
    """Answer with an error: as JSON to a request for the API, else as a page.

    `again`: the fields that were sent, which the page offers to send again.
    """
    if is_api(request.url.path):
        return status_error(status, text, headers)
    return HTMLResponse(render(request, View("error.html", {"error": text, "again": again})), status, headers)
