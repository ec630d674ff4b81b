"""Waiting for room in a full queue: send an enqueue again and again until it succeeds or the time is over.

Invariant: nothing notifies the producer of room; it tries again, first soon, then less and less often. A refused
enqueue has made no run, so a second try makes no run twice. When the time is over, the refusal stands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from pgsched.errors import InputError, QueueFull

T = TypeVar("T")
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


def pauses(seconds: float, clock: Callable[[], float] = time.monotonic) -> Iterator[float]:
    """Yield the seconds to wait before each further try; end when `seconds` are over."""
    ends_at, pause = clock() + seconds, FIRST_PAUSE_S
    while (left := ends_at - clock()) > 0:
        yield min(pause, left)
        pause = min(LONGEST_PAUSE_S, 1.5 * pause)


def seconds_to_wait(conn: Any, values: dict[str, Any]) -> float:
    """Return for how many seconds an enqueue may wait for room (`wait_for_room`).

    Raises InputError on the caller's own connection: a refusal ends its transaction.
    """
    lasts = values.get("wait_for_room")
    if lasts is None:
        return 0.0
    if conn is not None:
        raise InputError("wait_for_room: cannot wait on a connection of the caller", "wait_for_room")
    return float(lasts.total_seconds())


def retry_while_full(send: Callable[[], T], seconds: float) -> T:
    """Return what `send` returns, called again while the queue is full. Raises QueueFull when the time is over."""
    for pause in pauses(seconds) if seconds else ():
        try:
            return send()
        except QueueFull:
            time.sleep(pause)
    return send()


async def when_there_is_room_async(send: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Do what `retry_while_full` does, for asyncio."""
    for pause in pauses(seconds) if seconds else ():
        try:
            return await send()
        except QueueFull:
            await asyncio.sleep(pause)
    return await send()
