"""The guard around the console: checks each request before any route sees it.

Invariant: no route can forget a check, because every request passes here first. The guard checks three things: the host
is ours, the visitor may come in, and a change comes from one of the console's own pages.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgsched.web.api.errors import status_error
from pgsched.web.security.application_auth import ConsoleUser, ask_application
from pgsched.web.security.guesses import address_of
from pgsched.web.security.prefix import inner_scope, split_path
from pgsched.web.security.secrets import equal_secrets
from pgsched.web.security.visitors import SAFE_METHODS, Visitor, VisitorRecognition, bearer_token, give_cookie
from pgsched.web.settings import Settings

LARGEST_BODY, BODY_S = 4 << 20, 20.0
MOST_FIELDS = 20_000
LOGIN = ("/login", "/logout")
OPEN_FILES = ("/static/", "/healthz")
OPEN = (*OPEN_FILES, "/login")
FORM = "application/x-www-form-urlencoded"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


# Makes the answer to a request that is not served, from: status, reason, headers, fields that may be sent again.
Refuse = Callable[[Request, int, str, dict[str, str], dict[str, list[str]] | None], Response]


class Guard:
    """The ASGI application around the console.

    `app`: the console behind the guard.
    `recogniser`: recognises visitors.
    `refuse`: makes the answer to a request that is not served.
    `open`: the beginnings of paths that need no login.
    `headers`: security headers for every answer.
    """

    def __init__(self, app: ASGIApp, settings: Settings, known: VisitorRecognition, refuse: Refuse) -> None:
        self.app, self.settings, self.recogniser, self.refuse = app, settings, known, refuse
        self.open = OPEN if settings.auth is None else OPEN_FILES
        self.headers = dict(HEADERS)
        if settings.https:
            self.headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass to the console or refuse it; add headers and a cookie to the answer."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        place = split_path(scope, self.settings.root_path)
        if place is None:
            nowhere = PlainTextResponse(f"this console is at {self.settings.root_path}/, and nowhere else\n", 404)
            return await nowhere(scope, receive, self.sender(send, "", None))
        prefix, path = place
        user: ConsoleUser | None = None
        if self.settings.auth is not None and not path.startswith(self.open):
            answer = await self.user_of_application(scope, api=is_api(path))
            if isinstance(answer, Response):
                return await answer(scope, receive, self.sender(send, "", None))
            user = answer
        scope = inner_scope(scope, path, {"prefix": prefix, "form": {}, "body": b""})
        scope["app"] = self.app  # refusals are pages of the console, too
        asked = HTTPConnection(scope)
        counted = self.is_guess(asked)
        guesses = counted and not asked.app.state.bearers.begin(address_of(asked.client))
        if guesses:  # over the limit, even the right token is not checked
            scope["headers"] = [one for one in scope["headers"] if one[0] != b"authorization"]
            asked = HTTPConnection(scope)
        visitor, new = self.recogniser.visitor(asked, user)
        scope["state"]["visitor"] = visitor
        if counted and not guesses and visitor.role != "none":
            asked.app.state.bearers.right(address_of(asked.client))
        sender = self.sender(send, prefix, self.cookie(asked, visitor) if new else None)
        refusal = await self.refusal(scope, receive, visitor, guesses=guesses)
        return await (refusal or self.app)(scope, receive, sender)

    def sender(self, send: Send, prefix: str, cookie: str | None) -> Send:
        """Return the function that sends an answer with our headers, and with the prefix before its `Location`.

        `cookie`: the session cookie of a new visitor, unless the answer sets one itself.
        """

        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self.headers.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if prefix and headers.get("location", "").startswith("/"):
                    headers["location"] = prefix + headers["location"]
                known = headers.getlist("set-cookie")
                if cookie and not any(value.startswith(cookie.partition("=")[0] + "=") for value in known):
                    headers.append("set-cookie", cookie)
            await send(message)

        return sender

    async def user_of_application(self, scope: Scope, *, api: bool) -> ConsoleUser | Response | None:
        """Return the user whom the application names; its own answer where it raises an HTTPException."""
        assert self.settings.auth is not None
        try:
            return await ask_application(self.settings.auth, scope)
        except HTTPException as refusal:
            text = refusal.detail if isinstance(refusal.detail, str) else json.dumps(refusal.detail)
            if api:
                return status_error(refusal.status_code, text, refusal.headers or {})
            return PlainTextResponse(f"{text}\n", refusal.status_code, refusal.headers)

    def is_guess(self, asked: HTTPConnection) -> bool:
        """Check whether the request shows a token that counts as a guess until it turns out to be right.

        Tokens that the application checks (`auth`) are none of ours, and no guesses.
        """
        shown = bearer_token(asked)
        return shown is not None and self.settings.has_secrets and not self.settings.is_right_and_strong(shown)

    def cookie(self, asked: HTTPConnection, visitor: Visitor) -> str:
        """Return the Set-Cookie header for the visitor's session."""
        sealed = self.recogniser.signer.cookie(visitor.session)
        return give_cookie(Response(), self.settings, sealed, asked).headers["set-cookie"]

    def refused(
        self, asked: Request, status: int, why: str, headers: dict[str, str] | None = None,
        again: dict[str, list[str]] | None = None,
    ) -> Response:  # fmt: skip
        """Return a refusal, as JSON or as a page."""
        return self.refuse(asked, status, why, headers or {}, again)

    async def refusal(self, scope: Scope, receive: Receive, visitor: Visitor, *, guesses: bool) -> Response | None:
        """Return the answer to a request that must not be served, or None for a request that may pass.

        `guesses`: the address has sent too many wrong tokens.
        """
        asked = Request(scope, receive)
        api = is_api(scope["path"])
        refusal = self.refused_visitor(asked, api, visitor, guesses=guesses)
        if refusal is not None or asked.method in SAFE_METHODS:
            return refusal
        why = cross_site(asked.headers)
        if why is None and visitor.role == "read" and scope["path"] not in LOGIN:
            why = "you may look here but not change anything"
        if why is not None:
            return self.refused(asked, 403, why)
        try:
            async with asyncio.timeout(BODY_S):
                body = await read_body(asked)
        except TimeoutError:
            return self.refused(asked, 408, f"the body took more than {BODY_S:g} s", {"Connection": "close"})
        if body is None:
            return self.refused(asked, 413, f"more than {LARGEST_BODY} bytes", {"Connection": "close"})
        scope["state"]["body"] = body
        return self.forged(asked, api, visitor)

    def refused_visitor(self, asked: Request, api: bool, visitor: Visitor, *, guesses: bool) -> Response | None:
        """Return a refusal for a host that is not ours, or for a visitor that may not see this path, or None."""
        path = asked.scope["path"]
        if not self.is_ours(asked.headers):
            why = "this console does not answer to that host name (see --allowed-host)"
            return self.refused(asked, 421, why) if api else PlainTextResponse(f"{why}\n", 421)
        if guesses:
            return self.refused(asked, 429, "too many wrong tokens: wait a minute", {"Retry-After": "60"})
        if visitor.role == "none" and not path.startswith(self.open):
            return self.unknown(asked, api)
        if self.settings.auth is not None and path in LOGIN:
            return self.refused(asked, 404, "the application around this console lets people in")
        if visitor.role == "produce" and not api:
            return self.refused(asked, 403, "this token is for programs that make runs by the API")
        return None

    def forged(self, asked: Request, api: bool, visitor: Visitor) -> Response | None:
        """Return a refusal for a change without the CSRF token of one of our own pages, or None.

        Fields of a form are read here, into the state of the request.
        """
        kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
        if api:
            # Only JSON: for it, another site's page needs a CORS preflight, which this console never grants.
            if kind != "application/json" and asked.state.body:
                return self.refused(asked, 415, "send JSON: Content-Type: application/json")
            shown = asked.headers.get("x-csrf-token", "") if visitor.ambient else visitor.csrf
        else:
            if kind != FORM:
                return self.refused(asked, 415, "send a form")
            text = asked.state.body.decode("utf-8", "replace")
            try:
                asked.state.form = parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
            except ValueError:
                return self.refused(asked, 413, f"a form has at most {MOST_FIELDS:,} fields")
            shown = asked.state.form.get("csrf", [""])[0]
        if equal_secrets(shown, visitor.csrf):
            return None
        if asked.url.path == "/login":
            return RedirectResponse("/login", 303)
        # Fields may be sent again only from a page of this console's own origin, and only by a person's click.
        ours = asked.headers.get("origin") is not None
        again = {name: values for name, values in asked.state.form.items() if name != "csrf"} if ours else None
        return self.refused(asked, 403, OLD_PAGE, {}, again)

    def is_ours(self, headers: Headers) -> bool:
        """Check whether the request names a host that the console answers to."""
        names = self.settings.allowed_hosts
        return not names or host_without_port(headers.get("host", "")) in names

    def unknown(self, asked: Request, api: bool) -> Response:
        """Return the answer to a visitor without a valid login or token."""
        if self.settings.auth is not None:
            return self.refused(asked, 403, "the application around this console does not let you in here")
        if api:
            return self.refused(asked, 401, "show a token: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        if not self.settings.has_login:
            return self.refused(asked, 401, "the proxy in front of this console did not give the user's name")
        if asked.method not in SAFE_METHODS:
            return self.refused(asked, 401, "nothing was changed: your login has ended, or there was none. Log in in"
                                            " another tab, then go back and send it again")  # fmt: skip
        wanted = asked.url.path + (f"?{asked.url.query}" if asked.url.query else "")
        return RedirectResponse(f"/login?next={quote(wanted, safe='')}", 303)


OLD_PAGE = "nothing was changed: the page was too old, or not one of this console's"


def is_api(path: str) -> bool:
    """Check whether a path belongs to the API, whose errors are JSON."""
    return path == "/api" or path.startswith("/api/")


def host_without_port(host: str) -> str:
    """Return a Host header without its port."""
    if host.startswith("["):
        return host[: host.find("]") + 1].lower()
    return host.partition(":")[0].lower()


def cross_site(headers: Headers) -> str | None:
    """Return why a change seems to come from the page of another site, or None if it does not."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and host_of_origin(origin) != host.lower():
        return f"the request comes from a page of {origin[:200]}"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "the request comes from a page of another site"
    return None


def host_of_origin(origin: str) -> str | None:
    """Return host and port of an origin; None for a text that is not an origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


async def read_body(asked: Request) -> bytes | None:
    """Return the body of the request, or None if it is too large."""
    body = b""
    async for chunk in asked.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            return None
    return body
