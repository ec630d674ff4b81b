"""Recognition of visitors by what a request shows: a cookie, a token, or a header of a trusted proxy."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.responses import Response

from pgsched.web.security.application_auth import ROLES, ConsoleUser
from pgsched.web.security.keys import EndedSessions
from pgsched.web.security.prefix import prefix_of
from pgsched.web.security.secrets import Role, Session, Signer, new_session
from pgsched.web.settings import Settings

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")  # requests that change nothing
COOKIELESS_PATHS = ("/api/", "/static/", "/healthz")  # paths whose answers set no cookie


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request.

    `role`: what the visitor may do.
    `user`: the visitor's name; empty if it is not known.
    `csrf`: the token that the visitor's forms carry.
    `ambient`: the browser sends the proof by itself, so that another site could have caused the request.
    """

    role: Role
    user: str
    session: Session
    csrf: str
    ambient: bool = True

    @property
    def may_write(self) -> bool:
        """Check whether the visitor may change things."""
        return self.role == "write"


class VisitorRecognition:
    """The secrets in the settings, and the recognition of a request's visitor by them."""

    def __init__(self, settings: Settings, signer: Signer, ended: EndedSessions) -> None:
        self.settings, self.signer, self.ended = settings, signer, ended
        password = None if settings.password is None else settings.password.text
        secrets: list[tuple[str | None, Role, str]] = [
            (settings.reader_token, "read", ""), (settings.token, "write", ""), (password, "write", ""),
            *((token, "write", name) for name, token in settings.named_tokens),
        ]  # fmt: skip
        self._people: dict[str, tuple[Role, str]] = {
            signer.mark(role, secret): (role, name) for secret, role, name in secrets if secret is not None
        }

    def visitor(self, asked: HTTPConnection, user: ConsoleUser | None = None) -> tuple[Visitor, bool]:
        """Return the visitor, and whether the browser still needs a cookie.

        `user`: the person whom the application around the console has let in.
        """
        session = self.signer.session(asked.cookies.get(self.settings.cookie(prefix_of(asked))))
        if session is not None and session in self.ended:
            session = None
        known, session = session is not None, session or new_session()
        role, name, ambient = self.believed(asked, session, user)
        if role == "write" and self.settings.read_only:
            role = "read"
        page = not asked.url.path.startswith(COOKIELESS_PATHS)
        return Visitor(role, name, session, self.signer.csrf(session), ambient), page and not known

    def believed(self, asked: HTTPConnection, session: Session, user: ConsoleUser | None) -> tuple[Role, str, bool]:
        """Return role and name of the visitor, and whether the browser sent the proof by itself (ambient)."""
        settings = self.settings
        if settings.auth is not None:
            # No browser sends a bearer token by itself. All else that an application may look at counts as ambient.
            ambient = bearer_token(asked) is None
            return ("none", "", ambient) if user is None else (ROLES[user.role], user.name, ambient)
        if not settings.authenticates:
            return "write", "", False
        if (token := bearer_token(asked)) is not None:
            return *settings.by_token(token), False
        if settings.proxy_header and self.from_proxy(asked):
            header_values = asked.headers.getlist(settings.proxy_header)
            name = header_values[0] if len(header_values) == 1 else ""  # of two headers, one may come from the browser
            return ("write", name, True) if name else ("none", "", True)
        return *self._people.get(session.by, ("none", "")), True

    def from_proxy(self, asked: HTTPConnection) -> bool:
        """Check whether the connection itself comes from a trusted proxy."""
        return self.settings.is_shared(asked.client.host if asked.client else "")


def bearer_token(asked: HTTPConnection) -> str | None:
    """Return the token in the Authorization header, or None."""
    shown = asked.headers.get("authorization", "")
    return shown[7:] if shown[:7].lower() == "bearer " else None


def give_cookie(response: Response, settings: Settings, sealed: str, asked: HTTPConnection) -> Response:
    """Add the session cookie to the response."""
    secure, prefix = settings.https or asked.scope.get("scheme") == "https", prefix_of(asked)
    response.set_cookie(
        settings.cookie(prefix), sealed, path=prefix or "/", httponly=True, samesite="strict", secure=secure
    )
    return response
