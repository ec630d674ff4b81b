"""The rule: the wait before the next attempt grows as the job says, and never beyond its maximum.

Jitter only ever shortens the wait, so `maximum` is a promise and a fleet of failures does not come back in step.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pgsched.core.policies import BACKOFF


def delay(
    attempt: int, backoff: str, base: timedelta, maximum: timedelta, jitter: float, random: Callable[[], float]
) -> timedelta:
    """How long to wait after attempt number `attempt` (the first is 1) failed; `random` yields a number in [0, 1)."""
    seconds = min(_growth(attempt, backoff) * max(base.total_seconds(), 0.0), max(maximum.total_seconds(), 0.0))
    return timedelta(seconds=seconds * (1 - min(max(0.0, jitter), 1.0) * random()))


def _growth(attempt: int, backoff: str) -> float:
    past = max(attempt, 1) - 1
    if backoff == "exponential":
        # 2.0 ** 1024 overflows; at 2 ** 80 every base of at least a microsecond is past the longest timedelta.
        return 2.0 ** min(past, 80)
    if backoff == "linear":
        return float(past + 1)
    if backoff == "fixed":
        return 1.0
    raise ValueError(f'backoff "{backoff}" is not one of {", ".join(BACKOFF)}')
