"""Which of the runs that wait for limits may go now. Pure: counts, tokens and candidates are passed in.

The rule: a run goes only if every gate that it passes has room for it: the limit of its key, and that of its queue. A
gate that is shut for one key lets the runs of others by.

Rates: a bucket holds up to `burst` tokens and gains `rate` in each period. Each start takes one, so that no window of
one period sees more than rate + burst starts. Admitted runs start when a worker takes them, all at once if need be;
therefore each of them holds a token from its admission on: what is left for more (`tokens`) plus what is admitted and
unstarted never exceeds the burst.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

UNLIMITED = math.inf
SMALLEST_WINDOW = 10
LARGEST_WINDOW = 500
WINDOW_S = 0.05


@dataclass(slots=True)
class Gate:
    """What one limit allows at one moment. `room`: runs that its concurrency limit, or its window, lets in; `tokens`:
    starts that its rate has left; `burst`: the most that may be admitted and unstarted."""

    room: float = UNLIMITED
    tokens: float = UNLIMITED
    burst: float = UNLIMITED
    unstarted: int = 0

    def most(self) -> float:
        """How many could pass now."""
        whole = self.tokens if self.tokens == UNLIMITED else math.floor(self.tokens + 1e-9)
        return max(0.0, min(self.room, whole, self.burst - self.unstarted))

    def allows(self) -> bool:
        """May one more pass?"""
        return self.room >= 1 and self.burst - self.unstarted >= 1 and self.tokens >= 1 - 1e-9

    def take(self) -> None:
        """One more has passed."""
        self.room -= 1
        self.unstarted += 1
        self.tokens -= 1

    def give_back(self, n: int) -> None:
        """So many of those that had passed wait again, or have not passed after all."""
        self.unstarted -= n
        self.tokens = min(self.tokens + n, self.burst - self.unstarted)


OPEN = Gate()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that waits for limits alone. `priority`: the one that it has risen to."""

    id: int
    priority: int
    ready_at: Any
    risen: bool = False


@dataclass(slots=True)
class Group:
    """The runs of one key that wait in one queue, the first ones of them in order."""

    queue: str
    key: str
    gate: Gate = field(default_factory=Gate)
    weight: int = 1
    runs: Sequence[Candidate] = ()


@dataclass
class Window:
    """How many runs of a queue may be let go before they start: two for each slot, and more only where the workers take
    them so fast that this is less than they take in WINDOW_S. `left`: unstarted runs after the pass at `at`."""

    size: float = 0.0
    left: int = 0
    at: datetime | None = None

    def most(self, slots: int, unstarted: int, now: datetime) -> int:
        """What may be unstarted now."""
        elapsed_s = max(0.001, (now - self.at).total_seconds()) if self.at else math.inf
        if unstarted:
            wanted = (self.left - unstarted) / elapsed_s * WINDOW_S
        else:  # they might have taken more
            wanted = 2.0 * self.left if elapsed_s < WINDOW_S else 0.0
        least = max(SMALLEST_WINDOW, 2 * slots)
        self.size = max(least, min(LARGEST_WINDOW, max(wanted, 0.9 * self.size)))
        return math.floor(self.size)


def tokens_now(
    rate: int,
    period_s: float,
    burst: int,
    unstarted: int,
    bucket: tuple[float, float, int] | None,
    given_back: Sequence[float] = (),
) -> float:
    """What a bucket has for more admissions. `bucket`: (tokens then, seconds since, unstarted then), None: it is full.
    `given_back`: how many seconds ago claims were made that were then given back unstarted.

    Between two looks runs have started, nobody knows when: no more is gained than if all of them had started just now.
    """
    if bucket is None:
        return float(burst - unstarted)
    then, elapsed_s, unstarted_then = bucket
    gained = then + max(0.0, elapsed_s) * rate / period_s + refund(rate / period_s, given_back)
    # those that were unstarted then and have been given back since have not started
    unstarted_then -= sum(age_s < elapsed_s for age_s in given_back)
    return min(gained, float(burst - max(unstarted_then, unstarted)))


def refund(per_s: float, ages_s: Iterable[float]) -> float:
    """The tokens that claims given back unstarted are worth, made so many seconds ago.

    Had they not been made, the bucket might have been full ever since, and what came in be lost: so much less.
    """
    worth, then = 0.0, math.inf
    for age_s in sorted(ages_s, reverse=True):
        worth, then = max(0.0, worth - (then - age_s) * per_s) + 1, age_s
    return max(0.0, worth - then * per_s)


def default_burst(rate: int) -> int:
    """A tenth of the rate, at least one."""
    return max(1, rate // 10)


def choose(groups: Sequence[Group], queue_gate: Gate, fair: bool) -> list[tuple[Group, Candidate]]:
    """The runs of one queue that may go, in order; the gates have taken them. Where it is fair, the groups are in the
    order of their turns."""
    chosen = []
    for group, run in in_turns(groups) if fair else in_order(groups):
        if not queue_gate.allows():
            break
        if group.gate.allows():
            group.gate.take()
            queue_gate.take()
            chosen.append((group, run))
    return chosen


def in_order(groups: Iterable[Group]) -> list[tuple[Group, Candidate]]:
    """All candidates, the most urgent first, then the oldest; those of one key as they come."""
    found = [(run.priority, run.ready_at, run.id, group, run) for group in groups for run in group.runs]
    found.sort(key=lambda one: one[:3])
    return [(group, run) for *_, group, run in found]


def in_turns(groups: Sequence[Group]) -> Iterator[tuple[Group, Candidate]]:
    """One run of each key (or `weight` of them), then the next one of each."""
    left = [(group, iter(group.runs)) for group in groups]
    while left:
        again = []
        for group, runs in left:
            turn = list(islice(runs, group.weight))
            yield from ((group, run) for run in turn)
            if len(turn) == group.weight:
                again.append((group, runs))
        left = again


def wanted(groups: Sequence[Group], queue_gates: Mapping[str, Gate], fair: Container[str], budget: int) -> list[int]:
    """How many candidates of each group to read: no more than could pass, and not more than `budget` altogether."""
    share = max(1, budget // max(1, len(groups)))
    members = Counter(group.queue for group in groups)

    def most(group: Group) -> int:
        room = queue_gates[group.queue].most()
        if group.queue in fair and room < UNLIMITED:
            room = group.weight * math.ceil(room / members[group.queue])
        return int(max(1, min(share, group.gate.most(), room)))

    return [most(group) for group in groups]
