"""Choose which of the runs that wait for limits may be queued now.

Pure: counts, tokens and candidates are passed in.

Invariant: a run is admitted only if both its gates have room: the limit of its key and that of its queue. A gate that
is shut for one key does not stop runs of other keys.

Rates: a bucket holds up to `burst` tokens and gains `rate` tokens in each period. Each start takes one token. So no
window of one period sees more than rate + burst starts. Admitted runs start when a worker takes them, possibly all at
once. Therefore each admitted run holds a token from its admission on. The remaining tokens (`tokens`) plus the
admitted, unstarted runs never exceed the burst.
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
    """The room that one limit has at one moment.

    `room`: runs that its concurrency limit, or the window of its queue, still admits.
    `tokens`: starts that its rate has left.
    `burst`: the most runs that may be admitted and unstarted.
    `unstarted`: runs that are admitted and unstarted now.
    """

    room: float = UNLIMITED
    tokens: float = UNLIMITED
    burst: float = UNLIMITED
    unstarted: int = 0

    def free_room(self) -> float:
        """Return how many runs could pass now."""
        whole = self.tokens if self.tokens == UNLIMITED else math.floor(self.tokens + 1e-9)
        return max(0.0, min(self.room, whole, self.burst - self.unstarted))

    def allows(self) -> bool:
        """Check whether one more run may pass."""
        return self.room >= 1 and self.burst - self.unstarted >= 1 and self.tokens >= 1 - 1e-9

    def take(self) -> None:
        """Count one more run that passed."""
        self.room -= 1
        self.unstarted += 1
        self.tokens -= 1

    def give_back(self, n: int) -> None:
        """Count `n` runs that passed and now wait again, or did not pass after all."""
        self.unstarted -= n
        self.tokens = min(self.tokens + n, self.burst - self.unstarted)


OPEN = Gate()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that only limits hold. `priority`: the priority that it has risen to by ageing."""

    id: int
    priority: int
    ready_at: Any
    risen: bool = False


@dataclass(slots=True)
class Group:
    """The runs of one key that wait in one queue: the first few of them, in order."""

    queue: str
    key: str
    gate: Gate = field(default_factory=Gate)
    weight: int = 1
    runs: Sequence[Candidate] = ()


@dataclass
class Window:
    """How many runs of a queue may be admitted before they start.

    Normally two for each place of the workers (at least SMALLEST_WINDOW). More are admitted only where workers take
    more runs than that within WINDOW_S seconds.

    `left`: unstarted runs after the admission at `at`.
    """

    size: float = 0.0
    left: int = 0
    at: datetime | None = None

    def resize(self, places: int, unstarted: int, now: datetime) -> int:
        """Return how many runs may be unstarted now. `places`: those of all workers of the queue."""
        elapsed_s = max(0.001, (now - self.at).total_seconds()) if self.at else math.inf
        if unstarted:
            wanted = (self.left - unstarted) / elapsed_s * WINDOW_S
        else:  # all runs were taken, so the workers might have taken more
            wanted = 2.0 * self.left if elapsed_s < WINDOW_S else 0.0
        least = max(SMALLEST_WINDOW, 2 * places)
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
    """Return how many tokens a bucket has for further admissions.

    `bucket`: (tokens, seconds ago, unstarted) at the last look; None: the bucket is full.
    `given_back`: ages in seconds of claims that were given back unstarted.

    Runs have started since the last look, at unknown times. The bucket gains no more than if all of them had started
    just now.
    """
    if bucket is None:
        return float(burst - unstarted)
    then, elapsed_s, unstarted_then = bucket
    gained = then + max(0.0, elapsed_s) * rate / period_s + refund_tokens(rate / period_s, given_back)
    # Runs that were unstarted then and whose claims were given back since have not started.
    unstarted_then -= sum(age_s < elapsed_s for age_s in given_back)
    return min(gained, float(burst - max(unstarted_then, unstarted)))


def refund_tokens(per_s: float, ages_s: Iterable[float]) -> float:
    """Return the tokens to give back for claims that were given back unstarted.

    `per_s`: tokens gained each second.
    `ages_s`: how many seconds ago the claims were made.

    Without these claims the bucket might have been full since then, and further gains would have been lost. The refund
    is reduced by that amount.
    """
    worth, then = 0.0, math.inf
    for age_s in sorted(ages_s, reverse=True):
        worth, then = max(0.0, worth - (then - age_s) * per_s) + 1, age_s
    return max(0.0, worth - then * per_s)


def default_burst(rate: int) -> int:
    """Return the burst where none is set: a tenth of the rate, at least one."""
    return max(1, rate // 10)


def choose_runs(groups: Sequence[Group], queue_gate: Gate, fair: bool) -> list[tuple[Group, Candidate]]:
    """Choose the runs of one queue that are admitted, in order, and take their room in the gates.

    `fair`: the keys take turns; the groups are in the order of their turns.
    """
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
    """Return all candidates, the most urgent first, then the oldest; candidates of one key keep their order."""
    found = [(run.priority, run.ready_at, run.id, group, run) for group in groups for run in group.runs]
    found.sort(key=lambda one: one[:3])
    return [(group, run) for *_, group, run in found]


def in_turns(groups: Sequence[Group]) -> Iterator[tuple[Group, Candidate]]:
    """Yield `weight` runs of each key, then the next `weight` of each, until none is left."""
    left = [(group, iter(group.runs)) for group in groups]
    while left:
        again = []
        for group, runs in left:
            turn = list(islice(runs, group.weight))
            yield from ((group, run) for run in turn)
            if len(turn) == group.weight:
                again.append((group, runs))
        left = again


def candidates_to_read(
    groups: Sequence[Group], queue_gates: Mapping[str, Gate], fair: Container[str], budget: int
) -> list[int]:
    """Return how many candidates of each group to read.

    Not more than could pass, and at least one; about `budget` in total.
    """
    share = max(1, budget // max(1, len(groups)))
    members = Counter(group.queue for group in groups)

    def most(group: Group) -> int:
        room = queue_gates[group.queue].free_room()
        if group.queue in fair and room < UNLIMITED:
            room = group.weight * math.ceil(room / members[group.queue])
        return int(max(1, min(share, group.gate.free_room(), room)))

    return [most(group) for group in groups]
