"""The leases of the claims that this process holds.

Invariant: a claim is used only until its deadline: when its last successful renewal was *sent*, plus the lease, minus a
margin.

Deadlines are monotonic time of this process. Only the database decides when a lease has ended.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType

from pgsched.core.model import Claim, Key, Settlement

MARGIN = 0.1
RUN, TOKEN = itemgetter(0), itemgetter(1)  # fields of a claim, or of its settlement
NONE: Mapping[int, float] = MappingProxyType({})
ROOMY_BYTES = 400  # bytes for each claim: a dict that takes more is seven eighths empty


class Leases:
    """The claims that this process holds, with their deadlines. Thread-safe.

    They are stored by token, and within a token by run, because claims of one token come and go together.
    """

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._usable_s = lease_s * (1 - MARGIN)
        self._deadlines: dict[int, dict[int, float]] = {}
        self.soonest = math.inf  # no deadline is earlier: check this first, because it takes no look-up
        self._lock = threading.Lock()

    def add(self, claims: list[Claim], sent_at: float) -> None:
        """Hold these claims; `sent_at`: monotonic time before the claim statement was sent."""
        deadline = sent_at + self._usable_s
        with self._lock:
            self.soonest = min(self.soonest, deadline)
            for token, group in groupby(claims, TOKEN):
                deadlines = self._deadlines.setdefault(token.int, {})
                deadlines.update(dict.fromkeys(map(RUN, group), deadline))

    def drop(self, claims: Iterable[Claim | Settlement]) -> None:
        """Forget claims that are settled or lost."""
        with self._lock:
            for token, group in groupby(claims, TOKEN):
                deadlines = self._deadlines.get(token.int, {})
                for run in map(RUN, group):
                    deadlines.pop(run, None)
                if not deadlines:
                    self._deadlines.pop(token.int, None)
                elif sys.getsizeof(deadlines) > ROOMY_BYTES * (len(deadlines) + 10):
                    # long claims must not keep the memory of the short ones
                    self._deadlines[token.int] = dict(deadlines)

    @property
    def count(self) -> int:
        """The number of claims held now."""
        return sum(map(len, list(self._deadlines.values())))

    def held_keys(self) -> list[Key]:
        """Return the keys of the claims held now."""
        with self._lock:
            return [(run, token) for token, runs in self._deadlines.items() for run in runs]

    def renewed(self, keys: frozenset[Key], sent_at: float) -> None:
        """Move the deadlines of claims that a heartbeat renewed; `sent_at`: when it was sent."""
        deadline = sent_at + self._usable_s
        with self._lock:
            self.soonest = min(self.soonest, deadline)
            for run, token in keys:
                deadlines = self._deadlines.get(token)
                if deadlines is not None and run in deadlines:
                    deadlines[run] = deadline

    def holds(self, key: Key) -> bool:
        """Check whether this claim is held."""
        return key[0] in self._deadlines.get(key[1], NONE)

    def past(self, claim: Claim, now: float) -> bool:
        """Check whether this claim's deadline has passed at monotonic `now`."""
        return self._deadlines.get(claim[1].int, NONE).get(claim[0], now) <= now  # single look-ups need no lock

    def expired(self, now: float) -> list[Key]:
        """Return the claims whose deadline has passed at monotonic `now`: other workers may own them soon."""
        with self._lock:
            if now < self.soonest:
                return []
            found = [
                (run, token)
                for token, runs in self._deadlines.items()
                for run, deadline in runs.items()
                if deadline <= now
            ]
            self.soonest = min((min(runs.values()) for runs in self._deadlines.values()), default=math.inf)
            return found
