"""Runs of a batch that is prepared ahead of its instant are claimed ahead too, for the worker of the leader's process.

Otherwise the workers would begin to claim at the instant what was ready before it. The rule: the claims are part of the
batch's transaction. They come to be when it commits, and nobody has seen them if it does not; a worker starts nothing
before it is told that they were committed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol
from uuid import UUID, uuid4

from pgsched.db import leading
from pgsched.db.claims import Wanted, claim_ahead
from pgsched.db.connect import Connection
from pgsched.model import Claim

BASE_S, EACH_S = 0.002, 0.00003  # what claiming takes at most, nearly always: it must not make the batch late


class NotAsPrepared(Exception):
    """What a batch was prepared for does not hold at its instant: nothing of it is kept, and it is decided on time."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A worker has room for `n` runs of these queues (empty: of any)."""

    wanted: Wanted
    queues: tuple[str, ...]
    n: int


class Seats(Protocol):
    """The worker of this process. After an offer it hears how it ended: by `give`, or by `unsure`."""

    def offer(self, n: int) -> Offer | None:
        """Keep room for up to `n` runs; None: it has none, or no time to answer."""

    def give(self, claims: list[Claim], sent_at: float) -> None:
        """These claims were committed (or none); `sent_at`: when they were asked for, by the monotonic clock."""

    def unsure(self, queues: Sequence[str], token: UUID, sent_at: float) -> None:
        """Nobody knows whether claims with this token were committed: ask for them."""


class Ahead:
    """The claims of one batch, for the block that has its transaction in it."""

    def __init__(self, seats: Seats | None) -> None:
        self._seats = seats
        self._offered = False
        self._claims: list[Claim] = []
        self._token = uuid4()
        self._sent_at = 0.0
        self.pauses: str | None = None  # as they were; None: nothing is claimed

    def claim(self, conn: Connection[Any], made: Sequence[int], at: datetime) -> None:
        """Claim as many of the runs that this transaction has made as there is time for before their instant `at`."""
        if self._seats is None or not made:
            return
        n = min(len(made), int((leading.seconds_until(conn, at) - BASE_S) / EACH_S))
        offer = self._seats.offer(n) if n > 0 else None
        if offer is None:
            return
        self._offered, self._sent_at = True, time.monotonic()
        self.pauses = leading.pauses(conn)
        self._claims = claim_ahead(conn, offer.wanted, offer.queues, offer.n, self._token, made, at)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """The transaction has ended: the worker is told what became of the claims."""
        if self._seats is None or not self._offered:
            return
        if error is None:
            self._seats.give(self._claims, self._sent_at)
        elif isinstance(error, NotAsPrepared) or not self._claims:
            self._seats.give([], self._sent_at)
        else:
            self._seats.unsure(sorted({claim.queue for claim in self._claims}), self._token, self._sent_at)
