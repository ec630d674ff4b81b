"""The console inside an application of Starlette or FastAPI: `mount_console(application, "/jobs", auth=...)`.

Invariant: the console is never open by accident. Without `auth` it asks for a token or password of its own, and without
either it is not mounted.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from pgsched import hidden_environment
from pgsched.app.base import AppBase
from pgsched.config import find_dsn
from pgsched.errors import DatabaseUnreachable, InputError
from pgsched.web.app import lifespan, make_console
from pgsched.web.security import keys
from pgsched.web.security.application_auth import Auth, ConsoleUser
from pgsched.web.security.prefix import check_prefix
from pgsched.web.security.secrets import is_strong, parse_hash
from pgsched.web.settings import Settings, parse_tokens

__all__ = ["Auth", "ConsoleUser", "mount_console"]

# A server waits for open streams before it tells the application to end. Where the console cannot see that the server
# is stopping, no stream keeps it longer than this. The browser opens the next one.
STREAM_S = 20.0
LOOK_S = 0.25  # how often the console looks whether the server is stopping


def mount_console(  # noqa: PLR0913
    application: Any,
    path: str = "/jobs",
    *,
    auth: Auth | None = None,
    database: AppBase | str | None = None,
    token: str | None = None,
    reader_token: str | None = None,
    producer_token: str | None = None,
    password_hash: str | None = None,
    secret: str | None = None,
    read_only: bool = False,
) -> None:
    """Mount the console below `path` of an application of Starlette or FastAPI. Call it before the application starts.

    `auth`: a function, plain or async, that gets the request and returns the user's name, a `ConsoleUser` (for a
      viewer, who may only look), or None: refused. It replaces the console's own login.
    `database`: the pgsched App or the DSN. Without it, the database is found as every pgsched program finds it.
    `token`, `reader_token`, `producer_token`, `password_hash`: the console's own login, as `pgsched web` has it.
      Without them, the variables PGSCHED_WEB_TOKEN and so on count.
    `secret`: signs the cookies, at least 32 random characters. Needed where several processes or machines answer and
      share no folder (see PGSCHED_HOME). Default: PGSCHED_WEB_SECRET.
    `read_only`: nobody can change anything.

    Raises InputError for a wrong path or token, where there is neither `auth` nor a token or password, and for an
    application of another framework.
    """
    if not hasattr(application, "mount") or not hasattr(getattr(application, "router", None), "lifespan_context"):
        raise InputError(
            f"application: the console needs one of Starlette or FastAPI, got a {type(application).__name__}: beside"
            " others, start `pgsched web --root-path /jobs` and let your proxy lead there",
            "application",
        )
    prefix = check_prefix("path", path)
    if not prefix:
        raise InputError('path: the console needs a path of its own, such as "/jobs"', "path")
    settings = read_settings(auth, token, reader_token, producer_token, password_hash)
    given = secret or hidden_environment.environ().get("PGSCHED_WEB_SECRET")
    if given is not None and not is_strong(given):
        raise InputError("secret: needs at least 32 characters, 10 of them different: they sign the cookies", "secret")
    signing_key = None if given is None else hashlib.sha256(b"pgsched console " + given.encode()).digest()
    home = None if signing_key else keys.state_folder()
    settings = replace(settings, read_only=read_only, home=home, signing_key=signing_key, stream_s=STREAM_S)
    console = MountedConsole(settings, database)
    application.mount(prefix, console, name="pgsched")
    run_beside(application, console)


def read_settings(
    auth: Auth | None,
    token: str | None,
    reader_token: str | None,
    producer_token: str | None,
    password_hash: str | None,
) -> Settings:
    """Return the settings of the login. Raises InputError where nothing would keep a visitor out."""
    if auth is not None:
        if not callable(auth):
            raise InputError("auth: expected a function that takes the request", "auth")
        secrets = (token, reader_token, producer_token, password_hash)
        if any(one is not None for one in secrets):
            raise InputError("auth: the function replaces tokens and passwords: give either", "auth")
        return Settings("", auth=auth)
    env = hidden_environment.environ()
    single, named = parse_tokens(token or env.get("PGSCHED_WEB_TOKEN"))
    producer, producers = parse_tokens(producer_token or env.get("PGSCHED_WEB_PRODUCER_TOKEN"))
    hashed = password_hash or env.get("PGSCHED_WEB_PASSWORD_HASH")
    settings = Settings(
        "",
        token=single,
        named_tokens=named,
        reader_token=reader_token or env.get("PGSCHED_WEB_READER_TOKEN") or None,
        producer_tokens=(("", producer),) if producer else producers,
        password=parse_hash(hashed) if hashed else None,
    )
    if not settings.has_login:
        raise InputError(
            "auth: the console would be open to all: give auth=, token= or password_hash=, or set PGSCHED_WEB_TOKEN",
            "auth",
        )
    return settings


def find_database(database: AppBase | str | None) -> str:
    """Return the DSN of the console. Raises InputError or DatabaseUnreachable."""
    if isinstance(database, AppBase):
        return database.database.dsn()
    found = find_dsn(database)
    if found is None:
        raise DatabaseUnreachable("no database for the console: give database=, or set PGSCHED_DSN")
    return found


class MountedConsole:
    """The console as an ASGI application. It is made when the application around it starts, or at the first request.

    An application may start again after its end, as in tests. Then it has a new console: connections, streams and
    events belong to one run of the application.

    `database`: an app or a DSN. The DSN is found once for each console, and not before it is needed.
    """

    def __init__(self, settings: Settings, database: AppBase | str | None) -> None:
        self._settings, self._database = settings, database
        self._lock = Lock()
        self._console: Any = None

    def console(self) -> Any:
        """Return the console, after making it if there is none."""
        with self._lock:
            if self._console is None:
                self._console = make_console(replace(self._settings, dsn=find_database(self._database)))
            return self._console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. There are no web sockets: they are refused."""
        if scope["type"] == "websocket":
            await receive()
            return await send({"type": "websocket.close", "code": 1000})
        answer: ASGIApp = self._console or await asyncio.to_thread(self.console)
        return await answer(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Do what the console does in the background, and end its streams as soon as the server is stopping.

        In a test whose recorder keeps the runs (pgsched.testing) do nothing: the application starts all the same.
        """
        if isinstance(self._database, AppBase) and self._database.database.records:
            yield
            return
        console = await asyncio.to_thread(self.console)
        watching = asyncio.create_task(end_with_server(console.app.state.ending))
        try:
            async with lifespan(console.app):
                yield
        finally:
            watching.cancel()
            self._console = None


async def end_with_server(ending: asyncio.Event) -> None:
    """Set the event when uvicorn is asked to stop.

    uvicorn ends the application only after the last connection, and an event stream would keep it waiting.
    """
    while not ending.is_set():
        await asyncio.sleep(LOOK_S)
        if server_is_stopping():
            ending.set()


def server_is_stopping() -> bool:
    """Check whether the uvicorn server of this process was asked to stop; False for other servers.

    While uvicorn serves, a method of it handles SIGTERM. Nothing is changed here, only read.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


def run_beside(application: Any, console: MountedConsole) -> None:
    """Let the console run from the start of the application to its end, inside the application's own lifespan."""
    own = application.router.lifespan_context

    @asynccontextmanager
    async def with_console(around: Any) -> AsyncIterator[Any]:
        async with own(around) as state, console.running():
            yield state

    application.router.lifespan_context = with_console
