"""The task by the import path that Chancy keeps in its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

record: Callable[[int], None] = print
sleep_s = 0.0


async def noop(*, i: int) -> None:
    """Nothing."""
    record(i)
    if sleep_s:
        await asyncio.sleep(sleep_s)
