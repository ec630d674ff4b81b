"""Exceptions that a handler raises to decide what happens to its run: Retry, Snooze and Discard.

The functions read the text and the meaning of any exception of a handler. An exception is user code: its text may
raise, be endless, or hold characters that PostgreSQL refuses.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pgsched.app.declarations import Duration
from pgsched.core.input_values import parse_option_duration
from pgsched.core.text import replace_unstorable
from pgsched.errors import InputError

Kinds = tuple[type[BaseException], ...]
ERROR_CHARACTERS = 1000
NO_TIME = timedelta(0)
LONGEST_WAIT = timedelta(days=3650)


class Retry(Exception):
    """Raise it to fail this attempt and try again after `after`, instead of after the back-off. The attempt counts.

    `after`: seconds, a timedelta or a text such as `10m`, from 0 to ten years, otherwise ValueError; None leaves the
    delay to the back-off.
    """

    def __init__(self, after: Duration | None = None, message: str = "") -> None:
        super().__init__(message)
        self.after = None if after is None else check_wait("Retry", after)


class Snooze(Exception):
    """Raise it to run again after `after`. The attempt does not count and is no failure.

    `after`: seconds, a timedelta or a text such as `10m`, from 0 to ten years, otherwise ValueError.
    """

    def __init__(self, after: Duration, message: str = "") -> None:
        super().__init__(message)
        self.after = check_wait("Snooze", after)


class Discard(Exception):
    """Raise it when the run can never succeed: the run is dead, whatever `max_attempts` says."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


def check_wait(signal: str, after: Duration) -> timedelta:
    """Return the time to wait. Raises ValueError if the database cannot store it, and for a text that is no time."""
    if isinstance(after, str):
        try:
            after = parse_option_duration(f"{signal}: after", after)
        except InputError as error:
            raise ValueError(str(error)) from None
    found = after if isinstance(after, timedelta) else timedelta(seconds=after)
    if not timedelta(0) <= found <= LONGEST_WAIT:
        raise ValueError(f"{signal}(after={found}): expected 0 seconds to {LONGEST_WAIT.days} days")
    return found


def format_error(error: BaseException) -> str:
    """Return `TypeName: message` in one line, whatever the exception's own text does.

    For a group, the message includes the group's first error.
    """
    try:
        message = str(error)
        if isinstance(error, BaseExceptionGroup):
            first = leaves(error)[0]
            message = f"{message}: {type(first).__name__}: {first}"
    except BaseException as second:  # also SystemExit: it is the run's, as in its handler, and ends no worker
        message = f"(its text raises {type(second).__name__})"
    name = type(error).__name__
    message = " ".join(replace_unstorable(message[: 4 * ERROR_CHARACTERS]).split())
    line = f"{name}: {message}" if message else name
    return line if len(line) <= ERROR_CHARACTERS else line[: ERROR_CHARACTERS - 3] + "..."


def effective_error(error: BaseException) -> BaseException:
    """Return the exception that counts: usually `error` itself.

    A group of only Snooze or only Retry counts as the one of them with the longest wait.
    """
    if isinstance(error, BaseExceptionGroup) and (consists_of(error, (Snooze,)) or consists_of(error, (Retry,))):
        return max(leaves(error), key=lambda one: wait_of(one) or NO_TIME)
    return error


def wait_of(error: BaseException) -> timedelta | None:
    """Return how long a Retry or Snooze asks to wait; None if it gives no time, or a time that cannot be stored.

    A subclass of the user's may hold anything in `after`: seconds, a timedelta, or something else.
    """
    try:
        after: Any = error.after  # type: ignore[attr-defined]
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        return None if seconds is None else check_wait(type(error).__name__, seconds)
    except BaseException:  # as in format_error
        return None


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions in a group and in its nested groups, in order."""
    found, left = [], [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseExceptionGroup):
            left.extend(reversed(one.exceptions))
        else:
            found.append(one)
    return found


def consists_of(error: BaseException, kinds: Kinds) -> bool:
    """Check whether the error is of these kinds, or a group of only these (as asyncio.TaskGroup raises)."""
    return isinstance(error, kinds) or all(isinstance(one, kinds) for one in leaves(error))
