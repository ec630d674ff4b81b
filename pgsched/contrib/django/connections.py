"""Close Django's database connections around each attempt, as Django does around each web request.

Invariant: no handler gets a connection that a restart of the database has killed, and none that another attempt closes
while it is used. A plain handler has the connections of its thread: before and after it, those that are dead or too old
are closed. An async one has a thread of its own for its database calls, whose connections are closed at its end.

Source: `ThreadSensitiveContext` of asgiref (github.com/django/asgiref), which Django's ASGI handler has around each
request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django.db import close_old_connections, connections

from pgsched.app.run import Run
from pgsched.client.application import App


class ThreadOfTest:
    """Runs handlers in the test kit so that their database calls come back to the test's thread, and see its rows.

    See `OwnThreads` of pgsched/testing/own_threads.py, in whose place it stands.
    """

    def in_a_loop(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine and return its result."""
        from pgsched.testing.own_threads import awaited, in_a_thread_beside_a_loop  # a worker does not need it

        return in_a_thread_beside_a_loop(lambda: async_to_sync(awaited)(call))

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        """Make a plain call, and return its result."""
        return await sync_to_async(call)()


@asynccontextmanager
async def own_thread() -> AsyncIterator[None]:
    """Give the block a thread of its own for its database calls; close the thread's connections at the end."""
    async with ThreadSensitiveContext():
        try:
            yield
        finally:
            await sync_to_async(connections.close_all)()


def close_connections(app: App) -> None:
    """Close dead connections before and after each attempt of a plain handler, and all connections after an async one.

    In the test kit handlers use the connections of the test's thread, so that they see the rows of its transaction.
    None of these is closed.

    Call it once, where the App is made: `app = App("shop"); close_connections(app)`.
    """

    def around_plain(run: Run, call_next: Callable[[], Any]) -> Any:
        """Close dead connections in the thread of a plain handler, which has connections of its own."""
        if app.database.records:
            return call_next()
        close_old_connections()
        try:
            return call_next()
        finally:
            close_old_connections()

    async def around_async(run: Run, call_next: Callable[[], Any]) -> Any:
        """Give an async handler a thread of its own for its database calls."""
        if app.database.records:
            return await call_next()
        async with own_thread():
            return await call_next()

    app.hooks.in_tests = ThreadOfTest()
    app.middleware(around_plain)
    app.middleware(around_async)
