"""Login and logout of the console: the form, the check of a secret, and the session.

Invariant: secrets that can be guessed are guessed slowly. Each guess counts before it is checked, and one password is
hashed at a time, because a hash takes 32 MB. A right token that cannot be guessed never waits for wrong guesses of
other visitors.
"""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from pgsched.web.pages.responses import View, field_text, local_path, render
from pgsched.web.security.guesses import Guesses, address_of
from pgsched.web.security.prefix import prefix_of
from pgsched.web.security.secrets import Role, new_session
from pgsched.web.security.visitors import give_cookie
from pgsched.web.settings import Settings

MOST_WAITING = 8  # requests that may wait for the one hash


async def show_login(request: Request) -> Response:
    """Show the login form; with a token in the URL, as `pgsched web` prints it, log in."""
    if "token" in request.query_params:
        return await check_secret(request, request.query_params["token"])
    return render_form(request, 200)


def render_form(request: Request, status: int, problem: str = "") -> Response:
    """Return the login form; `problem` is the text above it."""
    settings: Settings = request.app.state.settings
    kinds = {"token": settings.has_token, "password": settings.password is not None}
    what = " or ".join(kind for kind, taken in kinds.items() if taken) or "token"
    values = {"problem": problem, "what": what, "next": local_path(field_text(request, "next"), "/")}
    return HTMLResponse(render(request, View("login.html", values)), status)


async def post_login(request: Request) -> Response:
    """Log in with the secret from the form."""
    return await check_secret(request, request.state.form.get("secret", [""])[0])


async def check_secret(request: Request, secret: str) -> Response:
    """Log the visitor in if the secret is right; else return the form with the problem."""
    state = request.app.state
    guesses: Guesses = state.guesses
    address = address_of(request.client)
    counted = not state.settings.is_right_and_strong(secret)
    if counted and not guesses.begin(address):
        return render_form(request, 429, "Too many wrong tries from your address: wait a minute.")
    if counted and state.settings.password is not None and state.hashing >= MOST_WAITING:
        return render_form(request, 429, "Too many tries at once: try again.")
    mark = await mark_of(request, secret)
    if mark is None:
        return render_form(request, 403, "That is not it.")
    if counted:
        guesses.right(address)
    # A new session: one that an attacker put into this browser must not get a role.
    response = RedirectResponse(local_path(field_text(request, "next"), "/"), 303)
    return give_cookie(response, state.settings, state.signer.cookie(new_session(mark)), request)


async def mark_of(request: Request, secret: str) -> str | None:
    """Return the mark of the secret for a session (see Signer.mark), or None if the secret is wrong."""
    state = request.app.state
    settings: Settings = state.settings
    role, _ = settings.by_token(secret)
    found: tuple[Role, str] | None = None if role in ("none", "produce") else (role, secret)
    if found is None and settings.password is not None and len(secret) <= 1024:
        if state.hash_lock is None:
            state.hash_lock = asyncio.Lock()
        state.hashing += 1
        try:
            async with state.hash_lock:
                fits = await run_in_threadpool(settings.password.fits, secret)
        finally:
            state.hashing -= 1
        found = ("write", settings.password.text) if fits else None
    return None if found is None else str(state.signer.mark(*found))


def log_out(request: Request) -> Response:
    """Log out: end the session, in every browser that has a copy of the cookie."""
    session, state = request.state.visitor.session, request.app.state
    if session.by:  # a session without a login gives no rights: there is nothing to end
        state.ended.add(session)
    response = RedirectResponse("/login", 303)
    prefix = prefix_of(request)
    response.delete_cookie(
        state.settings.cookie(prefix), prefix or "/", secure=state.settings.https, httponly=True, samesite="strict"
    )
    return response


ROUTES = [
    Route("/login", show_login, methods=["GET"]),
    Route("/login", post_login, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
]
