"""The rule: every request passes here first, so that no route can forget to ask. Who is it, is the host ours, does a
change come from one of our own pages?"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pgsched.web.security.secrets import Role, Session, Signer, begun, same
from pgsched.web.settings import Settings

COOKIE = "pgsched_session"
SAFE = ("GET", "HEAD", "OPTIONS")
LARGEST_BODY = 4 << 20
MOST_FIELDS = 20_000
OPEN = ("/static/", "/healthz", "/login")
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


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks. `ambient`: the browser says so by itself, so that another site could have made it ask."""

    role: Role
    user: str
    session: Session
    csrf: str
    ambient: bool = True

    @property
    def may_write(self) -> bool:
        return self.role == "write"


class Guard:
    """The ASGI application around the console."""

    def __init__(self, app: ASGIApp, settings: Settings, signer: Signer) -> None:
        self.app, self.settings, self.signer = app, settings, signer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        visitor, new = self.visitor(HTTPConnection(scope))
        scope["state"] = scope.get("state", {}) | {"visitor": visitor, "form": {}, "body": b""}
        cookie = self.cookie(scope, visitor.session) if new else None

        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
                if cookie and not any(value.startswith(COOKIE) for value in headers.getlist("set-cookie")):
                    headers.append("set-cookie", cookie)
            await send(message)

        refusal = await self.refusal(scope, receive, visitor)
        return await (refusal or self.app)(scope, receive, sender)

    def visitor(self, asked: HTTPConnection) -> tuple[Visitor, bool]:
        """Who asks, and whether their browser has yet to be given a cookie."""
        session = self.signer.session(asked.cookies.get(COOKIE))
        known, session = session is not None, session or begun()
        role, user, ambient = self.believed(asked, session)
        if role == "write" and self.settings.read_only:
            role = "read"
        page = not asked.url.path.startswith(("/api/", "/static/", "/healthz"))
        return Visitor(role, user, session, self.signer.csrf(session), ambient), page and not known

    def believed(self, asked: HTTPConnection, session: Session) -> tuple[Role, str, bool]:
        """The role and the name of whoever asks, and whether they are ambient."""
        settings = self.settings
        if not settings.authenticates:
            return "write", "", False
        bearer = asked.headers.get("authorization", "")
        if bearer[:7].lower() == "bearer ":
            return self.by_token(bearer[7:]), "", False
        if settings.proxy_header and self.from_proxy(asked):
            user = asked.headers.get(settings.proxy_header, "")
            return ("write", user, True) if user else ("none", "", True)
        return session.role, session.user, True

    def by_token(self, given: str) -> Role:
        """What a token allows; both are always compared."""
        writes = same(given, self.settings.token or "") and bool(self.settings.token)
        reads = same(given, self.settings.reader_token or "") and bool(self.settings.reader_token)
        return "write" if writes else "read" if reads else "none"

    def from_proxy(self, asked: HTTPConnection) -> bool:
        """Does the connection itself come from a proxy that is trusted?"""
        try:
            peer = ipaddress.ip_address(asked.client.host if asked.client else "")
        except ValueError:
            return False
        return any(peer in network for network in self.settings.proxies)

    def cookie(self, scope: Scope, session: Session) -> str:
        """The Set-Cookie header of a session."""
        response = Response()
        secure = self.settings.https or scope.get("scheme") == "https"
        response.set_cookie(COOKIE, self.signer.cookie(session), httponly=True, samesite="strict", secure=secure)
        return response.headers["set-cookie"]

    async def refusal(self, scope: Scope, receive: Receive, visitor: Visitor) -> Response | None:
        """Why the request is not served; None: it is."""
        asked = Request(scope, receive)
        path, api = scope["path"], scope["path"].startswith("/api/")
        if not self.is_ours(asked.headers):
            return PlainTextResponse("this console does not answer to that host name (see --allowed-host)\n", 421)
        if visitor.role == "none" and not path.startswith(OPEN):
            return self.unknown(asked, api)
        if asked.method in SAFE:
            return None
        if why := cross_site(asked.headers):
            return refused(api, 403, why)
        if visitor.role == "read" and path not in ("/login", "/logout"):
            return refused(api, 403, "you may look here but not change anything")
        if (body := await read_body(asked)) is None:
            return refused(api, 413, f"more than {LARGEST_BODY} bytes")
        scope["state"]["body"] = body
        return self.forged(asked, api, visitor)

    def forged(self, asked: Request, api: bool, visitor: Visitor) -> Response | None:
        """A change that does not show the token of one of our own pages."""
        kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
        if api:
            # JSON alone: a form of another site cannot send it without asking first, and nobody answers that
            if kind != "application/json" and asked.state.body:
                return refused(api, 415, "send JSON: Content-Type: application/json")
            shown = asked.headers.get("x-csrf-token", "") if visitor.ambient else visitor.csrf
        else:
            if kind != FORM:
                return refused(api, 415, "send a form")
            text = asked.state.body.decode("utf-8", "replace")
            try:
                asked.state.form = parse_qs(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
            except ValueError:
                return refused(api, 413, f"a form has at most {MOST_FIELDS:,} fields")
            shown = asked.state.form.get("csrf", [""])[0]
        if not same(shown, visitor.csrf):
            return refused(api, 403, "the page was too old, or not one of this console's: load it again")
        return None

    def is_ours(self, headers: Headers) -> bool:
        """Does the request name a host that is ours?"""
        names = self.settings.names
        return not names or bare(headers.get("host", "")) in names

    def unknown(self, asked: Request, api: bool) -> Response:
        """The answer to somebody who has not shown who they are."""
        if api:
            return refused(api, 401, "show a token: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        if not self.settings.logs_in:
            return refused(api, 401, "the proxy in front of this console did not say who you are")
        if asked.method not in SAFE:
            return refused(api, 401, "log in first")
        wanted = asked.url.path + (f"?{asked.url.query}" if asked.url.query else "")
        return RedirectResponse(f"/login?next={quote(wanted, safe='')}", 303)


def bare(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[: host.find("]") + 1].lower()
    return host.partition(":")[0].lower()


def cross_site(headers: Headers) -> str | None:
    """Why a change seems to come from another site's page; None: it does not."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and place_of(origin) != host.lower():
        return f"the request comes from a page of {origin[:200]}"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "the request comes from a page of another site"
    return None


def place_of(origin: str) -> str | None:
    """Host and port of an origin; None for what is none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


async def read_body(asked: Request) -> bytes | None:
    """The body, None where it is too large."""
    body = b""
    async for chunk in asked.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            return None
    return body


def refused(api: bool, status: int, why: str, headers: dict[str, Any] | None = None) -> Response:
    """A refusal in the form that was asked for."""
    if api:
        return JSONResponse({"error": why, "field": None}, status, headers)
    return PlainTextResponse(f"{why}\n", status, headers)
