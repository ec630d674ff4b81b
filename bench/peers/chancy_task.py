"""The task by the import path that Chancy keeps in its rows."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

record: Callable[[int], None] = print
sleep_s = 0.0
RECORDING = threading.Lock()


async def noop(*, i: int) -> None:
    """Nothing."""
    record(i)
    if sleep_s:
        await asyncio.sleep(sleep_s)


def plain(*, i: int) -> None:
    """Nothing, in one of many threads."""
    with RECORDING:
        record(i)
    if sleep_s:
        time.sleep(sleep_s)
