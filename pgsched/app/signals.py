"""What a handler raises to say what becomes of its run, and what any exception of a handler says and means.

The text of an exception is user code: it may raise, be endless, or hold what PostgreSQL refuses.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pgsched.core.text import storable

Kinds = tuple[type[BaseException], ...]
ERROR_CHARACTERS = 1000
NO_TIME = timedelta(0)
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


def one_line(error: BaseException) -> str:
    """`TypeName: message`, whatever the exception's own text does; of a group with its first error."""
    try:
        message = str(error)
        if isinstance(error, BaseExceptionGroup):
            first = leaves(error)[0]
            message = f"{message}: {type(first).__name__}: {first}"
    except BaseException as second:
        message = f"(its text raises {type(second).__name__})"
    name = type(error).__name__
    message = " ".join(storable(message[: 4 * ERROR_CHARACTERS]).split())
    line = f"{name}: {message}" if message else name
    return line if len(line) <= ERROR_CHARACTERS else line[: ERROR_CHARACTERS - 3] + "..."


def meaning_of(error: BaseException) -> BaseException:
    """What an exception means: itself; of a group that is all Snooze or all Retry, the one with the longest wait."""
    if isinstance(error, BaseExceptionGroup) and (consists_of(error, (Snooze,)) or consists_of(error, (Retry,))):
        return max(leaves(error), key=lambda one: wait_of(one) or NO_TIME)
    return error


def wait_of(error: BaseException) -> timedelta | None:
    """How long a Retry or Snooze asks to wait: as its class takes it, seconds or a timedelta. None if it does not say,
    or nothing that could be stored: a class of the user's may say anything."""
    try:
        after: Any = error.after  # type: ignore[attr-defined]
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        return None if seconds is None else wait(type(error).__name__, seconds)
    except BaseException:
        return None


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a group and in its groups, in order."""
    found, left = [], [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseExceptionGroup):
            left.extend(reversed(one.exceptions))
        else:
            found.append(one)
    return found


def consists_of(error: BaseException, kinds: Kinds) -> bool:
    """Is it one of these kinds, or a group of nothing else (as asyncio.TaskGroup raises)?"""
    return isinstance(error, kinds) or all(isinstance(one, kinds) for one in leaves(error))
