"""The answer to a claim was lost, or came late: whatever it took is this worker's already, and nobody else will run it.

The server may still be at it when it is asked: so it is asked again, ever later, until the lease would be over. A lease
counts from when the statement was sent, which is never too late; after a scan that took long the database says what is
left of it, or runs that only such a scan finds would always be handed back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from pgsched import log
from pgsched.core.model import Claim, Claims
from pgsched.db.connection.connect import AsyncConnection, DatabaseError
from pgsched.db.queries.runs.claims import claim_again, lease_left

logger = log.get("claim")
ASK_AGAIN_S = 1.0
LONG = 0.1  # of a lease
LONGEST_CLAIM_S = 35.0  # until the server is done with it: its statement_timeout, and what it waits for afterwards


class Lost(NamedTuple):
    """A claim without an answer: when it was sent, and from when on to ask for it."""

    sent_at: float
    ask_at: float


class Unconfirmed:
    """The claims that were sent and not answered yet, by token and queues. Times are monotonic seconds of this process.

    `on_claims(claims, sent_at)` takes what is found; `wake()` is called when it is time to ask.
    """

    def __init__(self, on_claims: Callable[[Claims, float], None], wake: Callable[[], object]) -> None:
        self.on_claims = on_claims
        self.wake = wake
        self._lost: dict[tuple[UUID, tuple[str, ...]], Lost] = {}

    def __bool__(self) -> bool:
        return bool(self._lost)

    def sent(self, token: UUID, queues: tuple[str, ...], at: float) -> None:
        """A claim is on its way."""
        self._lost[token, queues] = Lost(at, at)

    def settled(self, token: UUID, queues: tuple[str, ...]) -> None:
        """What became of it is known."""
        del self._lost[token, queues]

    async def ask(self, conn: AsyncConnection[Any], now: float, lease_s: float) -> None:
        """Ask for those whose time has come."""
        for (token, queues), lost in list(self._lost.items()):
            if lost.ask_at > now:
                continue
            if time.monotonic() > lost.sent_at + lease_s + LONGEST_CLAIM_S:
                self.settled(token, queues)
                continue
            claims = await claim_again(conn, queues, token)
            if claims:
                counted_at = await counted_from(conn, claims, lost.sent_at, lease_s)
                self.settled(token, queues)
                logger.info("claims recovered", count=len(claims))
                self.on_claims(claims, counted_at)
            else:
                age_s = time.monotonic() - lost.sent_at
                again_s = max(ASK_AGAIN_S, min(age_s, lease_s / 4))
                self._lost[token, queues] = Lost(lost.sent_at, time.monotonic() + again_s)
                asyncio.get_running_loop().call_later(again_s, self.wake)


async def counted_from(conn: AsyncConnection[Any], claims: Sequence[Claim], sent_at: float, lease_s: float) -> float:
    """From which monotonic instant on the lease of these claims counts, which were asked for at `sent_at`."""
    asked_at = time.monotonic()
    if not claims or asked_at - sent_at <= LONG * lease_s:
        return sent_at
    try:
        left_s = await lease_left(conn, claims)
    except DatabaseError:  # seen again by whoever uses the connection next
        return sent_at
    return sent_at if left_s is None else min(asked_at, max(sent_at, asked_at + left_s - lease_s))
