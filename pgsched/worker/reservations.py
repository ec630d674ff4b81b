"""Room that the leader of this process fills before an instant (leader/preparation.py).

The rule: the worker's loop itself keeps the room and takes what fills it. So a loop that is blocked offers none, and
what is given to one that has begun to stop is handed back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from uuid import UUID

from pgsched.core.model import Claim
from pgsched.leader.preparation import Offer
from pgsched.worker.attempts.runner import Slots
from pgsched.worker.claiming.claimer import Claimer

ANSWER_S, LONGEST_ANSWER_S = 0.005, 1.0
KEPT_S = 1.0  # a leader that hears nothing of its database must not keep the room of a worker that does


class WorkerSeats:
    """The seats of one worker. `offer`, `give` and `unsure` are for the leader's thread."""

    def __init__(self, claimer: Claimer, slots: Slots, queues: tuple[str, ...]) -> None:
        self._loop = asyncio.get_running_loop()
        self._claimer = claimer
        self._slots = slots
        self._queues = queues
        self._number = 0
        self._ended = asyncio.Event()
        self._ended.set()

    def offer(self, n: int) -> Offer | None:
        """Keep room for up to `n` runs; None: there is none, or the loop has no time to say so."""
        answer: Future[Offer | None] = Future()
        if not self._tell(self._offer, n, answer):
            return None
        with suppress(TimeoutError):
            return answer.result(ANSWER_S)
        if answer.cancel():
            return None
        with suppress(TimeoutError):  # it is at it just now
            return answer.result(LONGEST_ANSWER_S)
        self.give([], 0.0)  # of what it will have kept by then, nothing is needed
        return None

    def keep(self, n: int) -> None:
        """Of the room that was offered, no more is needed."""
        self._tell(self._keep, n)

    def give(self, claims: list[Claim], sent_at: float) -> None:
        """How an offer ended: with these claims."""
        self._tell(self._give, claims, sent_at)

    def unsure(self, queues: Sequence[str], token: UUID, sent_at: float) -> None:
        """How an offer ended: with claims that have to be asked for."""
        self._tell(self._unsure, queues, token, sent_at)

    async def ended(self, timeout_s: float) -> None:
        """Once the claimer takes no more: wait until the offer that is out has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()

    # ---- on the loop

    def _tell(self, what: object, *values: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(what, *values)  # type: ignore[arg-type]
        except RuntimeError:  # the worker has ended
            return False
        return True

    def _offer(self, n: int, answer: Future[Offer | None]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            room = min(n, self._claimer.room() - self._claimer.asking) if self._claimer.keeps_up() else 0
        except BaseException:
            answer.set_result(None)
            raise
        if room > 0:
            self._slots.kept = room
            self._ended.clear()
            self._number += 1
            self._loop.call_later(KEPT_S, self._give_up, self._number)
        answer.set_result(Offer(self._claimer.wanted, self._queues, room) if room > 0 else None)

    def _keep(self, n: int) -> None:
        if self._slots.kept > n:
            self._slots.kept = n
            self._claimer.wake()

    def _give_up(self, number: int) -> None:
        if number == self._number and not self._ended.is_set():
            self._slots.kept = 0  # what is given after that waits for a slot, or goes to others
            self._claimer.wake()

    def _give(self, claims: list[Claim], sent_at: float) -> None:
        self._slots.kept = 0
        if claims:
            self._claimer.on_claims(claims, sent_at)
            if self._claimer.stopped:
                self._slots.hand_back()
        self._claimer.wake()  # others may have found no room meanwhile
        self._ended.set()

    def _unsure(self, queues: Sequence[str], token: UUID, sent_at: float) -> None:
        self._slots.kept = 0
        self._claimer.ask_for(queues, token, sent_at)
        self._ended.set()
