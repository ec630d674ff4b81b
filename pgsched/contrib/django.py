"""Django's database connections in handlers.

Invariant: no handler meets a connection that a restart of the database has killed. Django closes such connections at
the beginning and end of each web request; a worker has no requests, so each attempt takes their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async  # type: ignore[import-untyped,import-not-found,unused-ignore]
from django.db import close_old_connections, connections  # type: ignore[import-untyped,import-not-found,unused-ignore]

from pgsched.app.run import Run
from pgsched.client.application import App


def close_connections(app: App) -> None:
    """Have each attempt of this app begin and end without dead connections, and leave none open at the end.

    Call it once, where the App is made: `app = App("shop"); close_connections(app)`.
    """
    app.middleware(around_plain)
    app.middleware(around_async)
    app.on_shutdown(connections.close_all)


def around_plain(run: Run, call_next: Callable[[], Any]) -> Any:
    """In the thread of a plain handler, which has connections of its own."""
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()


async def around_async(run: Run, call_next: Callable[[], Any]) -> Any:
    """Around all handlers: an async one asks the database in the thread that asgiref keeps for this."""
    close = sync_to_async(close_old_connections)
    await close()
    try:
        return await call_next()
    finally:
        await close()
