"""The task, at the import path that Chancy stores in its rows."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

record: Callable[[int], None] = print
sleep_s = 0.0
RECORDING = threading.Lock()


async def noop(*, i: int) -> None:
    """Record the number, and do nothing else."""
    record(i)
    if sleep_s:
        await asyncio.sleep(sleep_s)


def plain(*, i: int) -> None:
    """Record the number in one of many threads, and do nothing else."""
    with RECORDING:
        record(i)
    if sleep_s:
        time.sleep(sleep_s)
