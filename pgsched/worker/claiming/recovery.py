"""Recovery of claims whose answer was lost or came late: their runs are this worker's, and no other worker runs them.

The server may still execute the statement when it is asked. So the question is repeated, at growing intervals, until
the lease would have ended.

A lease counts from when the statement was sent, which is never too late. After a long scan the database says how much
of the lease is left. Otherwise runs that only a long scan finds would always be handed back.
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
from pgsched.db.queries.runs.claims import claim_unconfirmed, lease_left

logger = log.get("claim")
ASK_AGAIN_S = 1.0
LONG = 0.1  # share of a lease from which a claim counts as long
LONGEST_CLAIM_S = 35.0  # the longest that the server works on a claim: statement_timeout, and waits after it


class UnansweredClaim(NamedTuple):
    """A claim without an answer: when it was sent, and when to ask for it."""

    sent_at: float
    ask_at: float


class Unconfirmed:
    """The claims that were sent and not answered yet, by token and queues. All times are monotonic seconds.

    - `on_claims(claims, sent_at)`: takes claims that are found.
    - `wake()`: called when it is time to ask.
    """

    def __init__(self, on_claims: Callable[[Claims, float], None], wake: Callable[[], object]) -> None:
        self.on_claims = on_claims
        self.wake = wake
        self._lost: dict[tuple[UUID, tuple[str, ...]], UnansweredClaim] = {}

    def __bool__(self) -> bool:
        return bool(self._lost)

    def sent(self, token: UUID, queues: tuple[str, ...], at: float) -> None:
        """Note that a claim is on its way."""
        self._lost[token, queues] = UnansweredClaim(at, at)

    def settled(self, token: UUID, queues: tuple[str, ...]) -> None:
        """Forget a claim whose result is known."""
        del self._lost[token, queues]

    async def ask(self, conn: AsyncConnection[Any], now: float, lease_s: float) -> None:
        """Ask the database for the claims that are due."""
        for (token, queues), lost in list(self._lost.items()):
            if lost.ask_at > now:
                continue
            if time.monotonic() > lost.sent_at + lease_s + LONGEST_CLAIM_S:
                self.settled(token, queues)
                continue
            claims = await claim_unconfirmed(conn, queues, token)
            if claims:
                counted_at = await lease_start(conn, claims, lost.sent_at, lease_s)
                self.settled(token, queues)
                logger.info("claims recovered", count=len(claims))
                self.on_claims(claims, counted_at)
            else:
                age_s = time.monotonic() - lost.sent_at
                again_s = max(ASK_AGAIN_S, min(age_s, lease_s / 4))
                self._lost[token, queues] = UnansweredClaim(lost.sent_at, time.monotonic() + again_s)
                asyncio.get_running_loop().call_later(again_s, self.wake)


async def lease_start(conn: AsyncConnection[Any], claims: Sequence[Claim], sent_at: float, lease_s: float) -> float:
    """Return the monotonic time from which the lease of these claims counts; they were sent at `sent_at`."""
    asked_at = time.monotonic()
    if not claims or asked_at - sent_at <= LONG * lease_s:
        return sent_at
    try:
        left_s = await lease_left(conn, claims)
    except DatabaseError:  # the next statement on this connection fails in the same way
        return sent_at
    return sent_at if left_s is None else min(asked_at, max(sent_at, asked_at + left_s - lease_s))
