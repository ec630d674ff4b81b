"""Coming in and going out. The rule: guessing is slow, whoever guesses."""

from __future__ import annotations

import time
from collections import deque
from threading import Lock

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from pgsched.web.pages.responses import View, given, local, render
from pgsched.web.security.guard import COOKIE
from pgsched.web.security.secrets import Role, begun, same
from pgsched.web.settings import Settings

GUESSES, WITHIN_S = 10, 60.0


class Guesses:
    """The wrong guesses of the last minute, of all addresses: somebody who guesses has many."""

    def __init__(self) -> None:
        self._at: deque[float] = deque()
        self._lock = Lock()

    def too_many(self, now: float) -> bool:
        with self._lock:
            while self._at and self._at[0] < now - WITHIN_S:
                self._at.popleft()
            return len(self._at) >= GUESSES

    def add(self, now: float) -> None:
        with self._lock:
            self._at.append(now)


def show(request: Request) -> Response:
    """The form."""
    return form(request, 200)


def form(request: Request, status: int, problem: str = "") -> Response:
    settings: Settings = request.app.state.settings
    what = "token" if settings.password is None else "password" if not settings.token else "token or password"
    values = {"problem": problem, "what": what, "next": local(given(request, "next"), "/")}
    return HTMLResponse(render(request, View("login.html", values)), status)


def enter(request: Request) -> Response:
    """Look at what was entered."""
    guesses: Guesses = request.app.state.guesses
    now = time.monotonic()
    if guesses.too_many(now):
        return form(request, 429, "Too many wrong tries: wait a minute.")
    role = allowed(request.app.state.settings, request.state.form.get("secret", [""])[0])
    if role == "none":
        guesses.add(now)
        return form(request, 403, "That is not it.")
    response = RedirectResponse(local(given(request, "next"), "/"), 303)
    return signed_in(request, response, role)


def allowed(settings: Settings, secret: str) -> Role:
    """What a token or password allows."""
    writes = settings.token is not None and same(secret, settings.token)
    reads = settings.reader_token is not None and same(secret, settings.reader_token)
    if not writes and settings.password is not None and len(secret) <= 1024:
        writes = settings.password.fits(secret)
    return "write" if writes else "read" if reads else "none"


def signed_in(request: Request, response: Response, role: Role) -> Response:
    """A new session, so that one that somebody else put into this browser is not raised to a role."""
    sealed = request.app.state.signer.cookie(begun(role))
    secure = request.app.state.settings.https or request.url.scheme == "https"
    response.set_cookie(COOKIE, sealed, httponly=True, samesite="strict", secure=secure)
    return response


def leave(request: Request) -> Response:
    """Forget the session."""
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response


ROUTES = [
    Route("/login", show, methods=["GET"]),
    Route("/login", enter, methods=["POST"]),
    Route("/logout", leave, methods=["POST"]),
]
