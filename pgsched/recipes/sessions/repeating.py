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


def repeat(database: Enqueuer, call: Callable[[Any], T], place: Place | None = None, *, maybe: str | None = None) -> T:
    """Call with a connection, again where the answer was lost, unless the place was lost, too.

    `maybe`: as for `Enqueuer.send`.
    """
    errors: list[DatabaseUnreachable] = []
    while True:
        try:
            return database.call(None, call, maybe=maybe)
        except DatabaseUnreachable as error:
            errors.append(error)
            check_goes_on(errors, place, maybe)
        time.sleep(PAUSES_S[len(errors) - 1])


async def repeat_async(
    database: Enqueuer, call: Callable[[Any], T], place: Place | None = None, *, maybe: str | None = None
) -> T:
    """Call with a connection: the asyncio form of `repeat`."""
    errors: list[DatabaseUnreachable] = []
    while True:
        try:
            return await database.call_async(None, call, maybe=maybe)
        except DatabaseUnreachable as error:
            errors.append(error)
            check_goes_on(errors, place, maybe)
        await asyncio.sleep(PAUSES_S[len(errors) - 1])


def check_goes_on(errors: list[DatabaseUnreachable], place: Place | None, maybe: str | None) -> None:
    """Raise the newest error, or one that says what may have been done, where the call is not to be repeated again."""
    if len(errors) > len(PAUSES_S) or (place is not None and place.lost is not None):
        telling = next((one for one in errors if maybe is not None and str(one).endswith(maybe)), errors[-1])
        raise telling from telling.__cause__
