"""Where the test kit runs handlers: in the thread of the test, or in one of its own if the other cannot be.

A framework may want another place (`Hooks.in_tests`): Django's connections belong to the thread of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any


class OwnThreads:
    """Runs coroutines in an event loop of their own, and plain calls beside a loop in a thread."""

    def in_a_loop(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine and return its result; in a thread if an event loop already runs in this one."""
        return in_a_thread_beside_a_loop(lambda: asyncio.run(awaited(call)))

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        """Make a plain call in a thread, and return its result."""
        return await asyncio.to_thread(call)


async def awaited(call: Callable[[], Awaitable[Any]]) -> Any:
    """Await what a call returns: a coroutine function for any callable."""
    return await call()


def in_a_thread_beside_a_loop(call: Callable[[], Any]) -> Any:
    """Make a call that runs an event loop: here, or in a thread if a loop already runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, call).result()
