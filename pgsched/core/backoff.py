"""Compute the wait before the next attempt of a run.

Invariant: the wait grows as the job's policy says, and is never longer than `maximum`. Jitter only shortens the wait.
It keeps runs that failed together from coming back together.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pgsched.core.policies import BACKOFF


def retry_delay(
    attempt: int, backoff: str, base: timedelta, maximum: timedelta, jitter: float, random: Callable[[], float]
) -> timedelta:
    """Return how long to wait after attempt number `attempt` failed; the first attempt is 1.

    `random`: returns a number in [0, 1).
    """
    seconds = min(_growth(attempt, backoff) * max(base.total_seconds(), 0.0), max(maximum.total_seconds(), 0.0))
    return timedelta(seconds=seconds * (1 - min(max(0.0, jitter), 1.0) * random()))


def _growth(attempt: int, backoff: str) -> float:
    """Return the factor for the base after this attempt."""
    past = max(attempt, 1) - 1
    if backoff == "exponential":
        # 2.0 ** 1024 overflows. With 2 ** 80 every base from a microsecond on exceeds the longest timedelta.
        return 2.0 ** min(past, 80)
    if backoff == "linear":
        return float(past + 1)
    if backoff == "fixed":
        return 1.0
    raise ValueError(f'backoff "{backoff}" is not one of {", ".join(BACKOFF)}')
