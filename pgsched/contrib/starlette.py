"""For an ASGI application: a worker in its lifespan, and for FastAPI and Starlette the console below one of its paths.

Litestar takes the lifespan, too; beside it the console is a server of its own (`pgsched web --root-path`).

Invariant: the worker starts after what your own lifespan opens, and has drained before your lifespan closes it.

No framework is imported here: a lifespan is a function that takes the application and returns an async context manager.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pgsched.client.application import App

if TYPE_CHECKING:
    from pgsched.contrib.console import ConsoleUser, mount_console

__all__ = ["ConsoleUser", "lifespan", "mount_console"]

Application = TypeVar("Application")
State = TypeVar("State")


@overload
def lifespan(app: App, own: None = None, **options: Any) -> Callable[[Any], AbstractAsyncContextManager[None]]: ...
@overload
def lifespan(
    app: App, own: Callable[[Application], AbstractAsyncContextManager[State]], **options: Any
) -> Callable[[Application], AbstractAsyncContextManager[State]]: ...
def lifespan(
    app: App, own: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None, **options: Any
) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """Return a lifespan with a worker of this app: `FastAPI(lifespan=lifespan(app, concurrency=4))`.

    `own`: your own lifespan, which goes around the worker; the state that it yields is passed on.
    `options`: those of `app.worker()`.

    The worker is `application.state.pgsched_worker`. The application does not start where the worker cannot start.
    """

    @asynccontextmanager
    async def with_worker(application: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as entered:
            state = None if own is None else await entered.enter_async_context(own(application))
            worker = await entered.enter_async_context(app.worker(**options))
            application.state.pgsched_worker = worker
            yield state

    return with_worker


def __getattr__(name: str) -> Any:
    """Import the console only where it is used: it needs the packages of the extra `web`."""
    if name not in ("ConsoleUser", "mount_console"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pgsched.contrib import console

    return getattr(console, name)
