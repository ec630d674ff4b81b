"""Runs of a batch that is prepared ahead of its instant are claimed ahead too, for the worker of the leader's process.

Otherwise the workers would begin to claim at the instant what was ready before it. The rule: the claims are part of the
batch's transaction. They come to be when it commits, and nobody has seen them if it does not; a worker starts nothing
before it is told that they were committed. Of a batch that many workers can run, this one gets its share, and no more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol
from uuid import UUID, uuid4

from pgsched.core.model import Claim
from pgsched.db.connection.connect import Connection, DatabaseError
from pgsched.db.queries.leader import leadership
from pgsched.db.queries.runs.claims import Wanted, claim_ahead, claim_started
from pgsched.leader.preparation_lead import risen

BASE_S = 0.002  # what a claim takes besides what each run of it does
EACH_S, LEAST_S, MOST_S = 0.00004, 0.000004, 0.005
SAMPLE = 20  # runs from which on a claim says what each of them takes
LOOKED_AT = 4  # runs for each that is claimed, so that those are claimed that come first
LATE_S = 0.05


class NotAsPrepared(Exception):
    """What a batch was prepared for does not hold at its instant: nothing of it is kept, and it is decided on time."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A worker has room for `n` runs of these queues (empty: of any)."""

    wanted: Wanted
    queues: tuple[str, ...]
    n: int


class Seats(Protocol):
    """The worker of this process. After an offer it hears how it ended, by `give` or `unsure`. None of it raises."""

    def offer(self, n: int) -> Offer | None:
        """Keep room for up to `n` runs; None: it has none, or no time to answer."""

    def keep(self, n: int) -> None:
        """Of the room of the offer, no more is needed than for `n` runs."""

    def give(self, claims: list[Claim], sent_at: float) -> None:
        """These claims were committed (or none); `sent_at`: when they were asked for, by the monotonic clock."""

    def unsure(self, queues: Sequence[str], token: UUID, sent_at: float) -> None:
        """Nobody knows whether claims with this token were committed: ask for them."""


class Cost:
    """What claiming ahead takes, in seconds."""

    def __init__(self) -> None:
        self.each_s = EACH_S

    def of(self, n: int) -> float:
        """What so many runs take."""
        return BASE_S + n * self.each_s

    def within(self, seconds: float) -> int:
        """How many runs can be claimed in so long."""
        return max(0, int((seconds - BASE_S) / self.each_s))

    def took(self, n: int, seconds: float) -> None:
        """So many runs took so long. What held up a single claim is no reason to claim nothing any more."""
        if n >= SAMPLE:
            self.each_s = risen(self.each_s, min(MOST_S, max(LEAST_S, (seconds - BASE_S) / n)))


class Ahead:
    """The claims of one batch, for the block that has its transaction in it."""

    def __init__(self, conn: Connection[Any], seats: Seats | None, cost: Cost) -> None:
        self._conn = conn
        self._seats = seats
        self._cost = cost
        self._offered = False
        self._claims: list[Claim] = []
        self._token = uuid4()
        self._sent_at = self._due = 0.0
        self.lacked_s = 0.0  # how much longer the lead should have been to claim all that there was room for
        self.pauses: str | None = None  # as they were; None: nothing is claimed

    def claim(self, made: Sequence[int], at: datetime) -> None:
        """Claim of the runs that this transaction has made, as many as there is time for before their instant `at`."""
        if self._seats is None or not made:
            return
        self._due = time.monotonic() + leadership.seconds_until(self._conn, at)
        offer = self._seats.offer(len(made))
        if offer is None:
            return
        self._offered, self._sent_at = True, time.monotonic()
        pauses, workers = leadership.claim_share(self._conn, offer.queues)
        wanted = min(offer.n, len(made) // max(1, workers))
        n = min(wanted, self._cost.within(self._due - time.monotonic()))
        if n < wanted:
            self.lacked_s = self._cost.of(wanted) - (self._cost.of(n) if n else 0.0)
        if n:
            self._seats.keep(n)
            self.pauses, began = pauses, time.monotonic()
            seen = made[: min(n * max(LOOKED_AT, workers), self._cost.within(self._due - began))]
            self._claims = claim_ahead(self._conn, offer.wanted, offer.queues, n, workers, self._token, seen, at)
            self._cost.took(len(self._claims), time.monotonic() - began)
        if not self._claims:
            self._offered, self.pauses = False, None
            self._seats.give([], self._sent_at)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """The transaction has ended: the worker is told what became of the claims."""
        if self._seats is None or not self._offered:
            return
        if error is None:
            late_s = time.monotonic() - self._due
            self._seats.give(self._claims, self._sent_at)
            if self._claims and late_s > LATE_S:
                with suppress(DatabaseError):  # what is recorded of them is not worth more than they are
                    claim_started(self._conn, self._claims)
        elif isinstance(error, NotAsPrepared) or not self._claims:
            self._seats.give([], self._sent_at)
        else:
            self._seats.unsure(sorted({claim.queue for claim in self._claims}), self._token, self._sent_at)
