"""What a handler raises to say what becomes of its run, instead of leaving that to the job's policies."""

from __future__ import annotations

from datetime import timedelta

LONGEST_WAIT = timedelta(days=3650)


class Retry(Exception):
    """This attempt failed; try again after this long instead of the back-off's delay. The attempt counts.

    `after`: seconds or a timedelta, from 0 to ten years, else ValueError; None leaves the delay to the back-off.
    """

    def __init__(self, after: float | timedelta | None = None, message: str = "") -> None:
        super().__init__(message)
        self.after = None if after is None else wait("Retry", after)


class Snooze(Exception):
    """Not now: call me again after this long. It costs no attempt and is no failure.

    `after`: seconds or a timedelta, from 0 to ten years, else ValueError.
    """

    def __init__(self, after: float | timedelta, message: str = "") -> None:
        super().__init__(message)
        self.after = wait("Snooze", after)


class Discard(Exception):
    """This run can never succeed: no further attempt, whatever `max_attempts` says."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


def wait(signal: str, after: float | timedelta) -> timedelta:
    """The time to wait, as far as a database can store it. ValueError if it cannot."""
    found = after if isinstance(after, timedelta) else timedelta(seconds=after)
    if not timedelta(0) <= found <= LONGEST_WAIT:
        raise ValueError(f"{signal}(after={found}): expected 0 seconds to {LONGEST_WAIT.days} days")
    return found
