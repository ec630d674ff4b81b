"""What a handler raises to say what becomes of its run, instead of leaving that to the job's policies."""

from __future__ import annotations

from datetime import timedelta

LONGEST_WAIT = timedelta(days=3650)


class Retry(Exception):
    """This attempt failed; try again after this long instead of the back-off's delay. The attempt counts."""

    def __init__(self, after: float | timedelta | None = None, message: str = "") -> None:
        super().__init__(message)
        self.after = after if after is None or isinstance(after, timedelta) else timedelta(seconds=after)
        if self.after is not None and not timedelta(0) <= self.after <= LONGEST_WAIT:
            raise ValueError(f"Retry(after={self.after}): expected 0 seconds to {LONGEST_WAIT.days} days")


class Discard(Exception):
    """This run can never succeed: no further attempt, whatever `max_attempts` says."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
