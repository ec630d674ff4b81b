"""Get items of a queue: ask, wait until something is told or the time has come to look again, and ask once more.

Invariant: nothing stays behind of a call that was cancelled, timed out or failed. What it got is given back, by the
keeper's thread; so is what a statement gets after its answer was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from pgsched.db.queries.recipes import items
from pgsched.db.queries.recipes.items import ItemRow
from pgsched.errors import DatabaseUnreachable, LeaseLost, PgschedError, WaitCancelled
from pgsched.recipes.items.item import Item
from pgsched.recipes.items.item_state import Hold
from pgsched.recipes.items.item_waiting import Waiting
from pgsched.recipes.sessions.keeper import Keeper
from pgsched.recipes.sessions.repeating import repeat, repeat_async
from pgsched.recipes.sessions.session import CLOSED, Session, left_s, now

GOT = "items may have been got: they are given back"

Answer = tuple[list[ItemRow], float | None]


class Getting:
    """One call that gets up to `limit` items of a queue, and waits for the first one up to `wait_s` seconds."""

    def __init__(
        self,
        keeper: Keeper,
        name: str,
        limit: int,
        wait_s: float | None,
        hold_s: float,
        max_attempts: int,
        retry_delay_s: float,
    ) -> None:
        self._keeper = keeper
        self._name = name
        self._limit, self._max_attempts = limit, max_attempts
        self._until = None if wait_s is None else now() + wait_s
        self._hold_s, self._retry_delay_s = hold_s, retry_delay_s

    def run(self) -> list[Item]:
        """Return the items; none where the session was lost before there were any.

        Raises TimeoutError, and WaitCancelled where the App was closed.
        """
        ready = threading.Event()
        with self._waiting(self._keeper.session(self._hold_s), ready.set) as place:
            while place.lost is None:
                rows, look_in_s = repeat(self._keeper.database, self._asking(place), place, maybe=GOT)
                if rows:
                    return self._hold(place, rows)
                ready.wait(self._pause_s(place, look_in_s))
                ready.clear()
                time.sleep(place.least_pause_s())
        return self._without_session(place)

    async def run_async(self) -> list[Item]:
        """Return the items: the asyncio form of `run`."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(ready.set)

        with self._waiting(await self._keeper.session_async(self._hold_s), wake) as place:
            while place.lost is None:
                rows, look_in_s = await repeat_async(self._keeper.database, self._asking(place), place, maybe=GOT)
                if rows:
                    return self._hold(place, rows)
                pause_s = self._pause_s(place, look_in_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):  # not wait_for: it may lose a cancellation (Python 3.11)
                        await ready.wait()
                ready.clear()
                await asyncio.sleep(place.least_pause_s())
        return self._without_session(place)

    def _without_session(self, place: Waiting) -> list[Item]:
        """Return none: the caller asks with another session. Raises WaitCancelled where the App was closed."""
        if place.lost == CLOSED:
            raise WaitCancelled(f'"{self._name}" is not waited for any more: {CLOSED}')
        return []

    @contextlib.contextmanager
    def _waiting(self, session: Session, wake: Callable[[], None]) -> Iterator[Waiting]:
        """Stand in line in this block; leave nothing behind where it fails."""
        place = Waiting(session, self._keeper.line(session, self._name), self._name, wake)
        try:
            self._keeper.add(place)
            yield place
        except BaseException as error:
            place.given_up = True
            place.end()
            self._keeper.remove(place, give_back=not is_refusal(error))
            raise
        place.end()
        if place.lost is not None:
            self._keeper.remove(place, give_back=False)

    def _asking(self, place: Waiting) -> Callable[[Any], Answer]:
        def ask(conn: Any) -> Answer:
            waits = self._until is None or self._until > now()
            try:
                found = items.get(
                    conn, self._name, place.item_token, place.session.token, self._limit, self._max_attempts, waits
                )
            except LeaseLost as error:
                place.session.lose(str(error))
                return [], None
            except BaseException as error:
                if not is_refusal(error):
                    self._keeper.drop(place.change_token())
                raise
            if place.given_up:  # what was given back then did not include this
                self._keeper.remove(place, give_back=True)
            return found

        return ask

    def _hold(self, place: Waiting, rows: list[ItemRow]) -> list[Item]:
        hold = Hold(self._keeper, place, [row.id for row in rows], self._retry_delay_s)
        return [Item(hold, row) for row in rows]

    def _pause_s(self, place: Waiting, look_in_s: float | None) -> float | None:
        """Return how long to wait until the next look; None: until it is woken. Raises TimeoutError."""
        left = left_s(self._until)
        if left == 0.0 and place.lost is None:
            raise TimeoutError(f'there was no item in "{self._name}" in time')
        pause_s = place.pause_s(look_in_s, self._keeper.listens)
        if left is None:
            return pause_s
        return max(0.0, left if pause_s is None else min(left, pause_s))


def is_refusal(error: BaseException) -> bool:
    """Whether the database has refused a statement, so that it has done nothing."""
    return isinstance(error, PgschedError) and not isinstance(error, DatabaseUnreachable)
