"""The rule: whatever user code raises or returns becomes an outcome that the database can store.

The text of an exception is user code too: it may raise, be endless, or hold what PostgreSQL refuses.
"""

from __future__ import annotations

import json
import os
import traceback
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pgsched.app.signals import Discard, Retry, Snooze, wait
from pgsched.core import payload
from pgsched.core.model import DONE, Outcome, Result

Kinds = tuple[type[BaseException], ...]
OURS = tuple(f"{Path(__file__).parents[1] / part}{os.sep}" for part in ("app", "execute", "worker"))
ERROR_CHARACTERS = 1000
TRACEBACK_CHARACTERS = 16_000
NO_TIME = timedelta(0)


def storable(text: str) -> str:
    """The same text with something to see in place of what PostgreSQL refuses: NUL characters and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def escaped(text: str) -> str:
    """The same text in ASCII, with escapes for the rest: for a database whose encoding has no place for it."""
    return text.encode("ascii", "backslashreplace").decode()


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


def traceback_text(error: BaseException) -> str | None:
    """The traceback from the user's first frame on; its middle is cut out when it is long."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OURS):
        frames = frames.tb_next  # the lines that called the handler
    try:
        text = storable("".join(traceback.format_exception(type(error), error, frames)))
    except BaseException as second:
        return f"(the traceback cannot be shown: {type(second).__name__})"
    half = TRACEBACK_CHARACTERS // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n[... cut ...]\n{text[-half:]}"


def failed(error: BaseException, no_retry: Kinds = ()) -> Outcome:
    """The outcome of an attempt that raised. Exceptions of the kinds `no_retry` are not retried."""
    meant = said(error)
    if isinstance(meant, Snooze):
        return Outcome(Result.SNOOZED, error=one_line(meant), retry_in=wait_of(meant))
    return Outcome(
        Result.FAILED,
        error=one_line(error),
        traceback=traceback_text(error),
        retry=isinstance(meant, Retry) or not consists_of(error, (Discard, *no_retry)),
        retry_in=wait_of(meant) if isinstance(meant, Retry) else None,
    )


def said(error: BaseException) -> BaseException:
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


def refused(message: str, *, retry: bool = False, log_tail: str | None = None) -> Outcome:
    """The outcome of an attempt that failed by a rule of ours and not by an exception."""
    line = storable(message)[:ERROR_CHARACTERS]
    return Outcome(Result.FAILED, error=line, retry=retry, log_tail=log_tail)


async def never_fits(task: str, error: str) -> Outcome:
    """The outcome of an attempt whose arguments do not fit, where there is no other release of the task."""
    return refused(error)


def succeeded(value: Any) -> Outcome:
    """The outcome of an attempt that returned; failed for good if the value cannot be kept as its result."""
    if value is None:
        return DONE
    try:
        payload.encode(value)
    except ValueError as error:
        return refused(f"the result ({type(value).__name__}) {storable(str(error))}")
    return Outcome(Result.SUCCEEDED, value=value)


def kept(value: Any) -> Outcome:
    """As `succeeded`, for a value that the handler may go on with: the next item's result may be the same dict."""
    outcome = succeeded(value)
    if outcome.value is None or isinstance(value, str | int | float):
        return outcome
    return replace(outcome, value=json.loads(payload.encode(value)))
