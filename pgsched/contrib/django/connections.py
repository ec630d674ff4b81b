"""Close Django's dead database connections around each attempt.

Invariant: no handler gets a connection that a restart of the database has killed. Django closes such connections at the
beginning and end of each web request. A worker has no requests, so this happens around each attempt instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections

from pgsched.app.run import Run
from pgsched.client.application import App


def close_connections(app: App) -> None:
    """Close dead connections before and after each attempt of this app, and all connections when the worker ends.

    Call it once, where the App is made: `app = App("shop"); close_connections(app)`.
    """
    app.middleware(around_plain)
    app.middleware(around_async)
    app.on_shutdown(connections.close_all)


def around_plain(run: Run, call_next: Callable[[], Any]) -> Any:
    """Close dead connections in the thread of a plain handler, which has connections of its own."""
    close_old_connections()
    try:
        return call_next()
    finally:
        close_old_connections()


async def around_async(run: Run, call_next: Callable[[], Any]) -> Any:
    """Close dead connections in the thread that asgiref keeps for database calls of async handlers."""
    close = sync_to_async(close_old_connections)
    await close()
    try:
        return await call_next()
    finally:
        await close()
