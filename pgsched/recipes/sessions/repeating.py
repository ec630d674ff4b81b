"""Repeat calls whose answer was lost.

Invariant: only calls that carry a token are repeated: the database gives them the same answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pgsched.db.enqueuer import Enqueuer
from pgsched.errors import DatabaseUnreachable
from pgsched.recipes.sessions.places import Place

T = TypeVar("T")
PAUSES_S = (0.1, 0.5)  # before a call is repeated


def repeat(database: Enqueuer, call: Callable[[Any], T], place: Place) -> T:
    """Call with a connection, again where the answer was lost, unless the place was lost, too."""
    for pause_s in PAUSES_S:
        try:
            return database.call(None, call)
        except DatabaseUnreachable:
            if place.lost is not None:
                raise
            time.sleep(pause_s)
    return database.call(None, call)


async def repeat_async(database: Enqueuer, call: Callable[[Any], T], place: Place) -> T:
    """Call with a connection: the asyncio form of `repeat`."""
    for pause_s in PAUSES_S:
        try:
            return await database.call_async(None, call)
        except DatabaseUnreachable:
            if place.lost is not None:
                raise
            await asyncio.sleep(pause_s)
    return await database.call_async(None, call)
