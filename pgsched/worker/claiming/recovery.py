"""The answer to a claim was lost: whatever it took is this worker's already, and nobody else will run it.

The server may still be at it when it is asked: so it is asked again, ever later, until the lease would be over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from pgsched import log
from pgsched.core.model import Claim
from pgsched.db.connection.connect import AsyncConnection
from pgsched.db.queries.runs.claims import claim_again

logger = log.get("claim")
ASK_AGAIN_S = 1.0
LONGEST_CLAIM_S = 35.0  # until the server is done with it: its statement_timeout, and what it waits for afterwards


class Lost(NamedTuple):
    """A claim without an answer: when it was sent, and from when on to ask for it."""

    sent_at: float
    ask_at: float


class Unconfirmed:
    """The claims that were sent and not answered yet, by token and queue. Times are monotonic seconds of this process.

    `on_claims(claims, sent_at)` takes what is found; `wake()` is called when it is time to ask.
    """

    def __init__(self, on_claims: Callable[[list[Claim], float], None], wake: Callable[[], object]) -> None:
        self.on_claims = on_claims
        self.wake = wake
        self._lost: dict[tuple[UUID, str], Lost] = {}

    def __bool__(self) -> bool:
        return bool(self._lost)

    def sent(self, token: UUID, queue: str, at: float) -> None:
        """A claim is on its way."""
        self._lost[token, queue] = Lost(at, at)

    def settled(self, token: UUID, queue: str) -> None:
        """What became of it is known."""
        del self._lost[token, queue]

    async def ask(self, conn: AsyncConnection[Any], now: float, lease_s: float) -> None:
        """Ask for those whose time has come."""
        for (token, queue), lost in list(self._lost.items()):
            if lost.ask_at > now:
                continue
            if time.monotonic() > lost.sent_at + lease_s + LONGEST_CLAIM_S:
                self.settled(token, queue)
                continue
            claims = await claim_again(conn, queue, token)
            if claims:
                self.settled(token, queue)
                logger.info("claims recovered", count=len(claims))
                self.on_claims(claims, lost.sent_at)
            else:
                age_s = time.monotonic() - lost.sent_at
                again_s = max(ASK_AGAIN_S, min(age_s, lease_s / 4))
                self._lost[token, queue] = Lost(lost.sent_at, time.monotonic() + again_s)
                asyncio.get_running_loop().call_later(again_s, self.wake)
