"""The rule: who enqueues into a full queue may wait for room, for so long; then the refusal stands.

Nothing wakes it: it asks again, first soon and then ever later. A refused enqueue has made no run, so that asking again
makes none twice.
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
    """How long to wait before each further question; it ends when the time is over."""
    ends_at, pause = clock() + seconds, FIRST_PAUSE_S
    while (left := ends_at - clock()) > 0:
        yield min(pause, left)
        pause = min(LONGEST_PAUSE_S, 1.5 * pause)


def patience(conn: Any, values: dict[str, Any]) -> float:
    """Seconds that an enqueue may wait for room. InputError if it cannot: a refusal ends the caller's transaction."""
    lasts = values.get("wait_for_room")
    if lasts is None:
        return 0.0
    if conn is not None:
        raise InputError("wait_for_room: cannot wait on a connection of the caller", "wait_for_room")
    return float(lasts.total_seconds())


def when_there_is_room(send: Callable[[], T], seconds: float) -> T:
    """What `send` gives, asked again while the queue is full. Raises QueueFull when the time is over."""
    for pause in pauses(seconds) if seconds else ():
        try:
            return send()
        except QueueFull:
            time.sleep(pause)
    return send()


async def when_there_is_room_async(send: Callable[[], Awaitable[T]], seconds: float) -> T:
    """The asyncio form of `when_there_is_room`."""
    for pause in pauses(seconds) if seconds else ():
        try:
            return await send()
        except QueueFull:
            await asyncio.sleep(pause)
    return await send()
