"""Functions that make an outcome from an exception or a return value of user code.

Invariant: every exception and every return value becomes an outcome that the database can store. An exception's text is
user code too: to read it may raise, and the text may be endless or hold characters that PostgreSQL refuses.
"""

from __future__ import annotations

import json
import os
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from pgsched.app.rules.retrying import ALWAYS, RetryRule
from pgsched.app.signals import ERROR_CHARACTERS, Snooze, effective_error, format_error, wait_of
from pgsched.core import payload
from pgsched.core.model import DONE, Outcome, Result
from pgsched.core.text import replace_unstorable

OURS = tuple(f"{Path(__file__).parents[1] / part}{os.sep}" for part in ("app", "execute", "worker"))
TRACEBACK_CHARACTERS = 16_000


def traceback_text(error: BaseException) -> str | None:
    """Return the traceback from the user's first frame on, with the middle cut out of a long one."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OURS):
        frames = frames.tb_next  # pgsched's own frames, which called the handler
    try:
        text = replace_unstorable("".join(traceback.format_exception(type(error), error, frames)))
    except BaseException as second:
        return f"(the traceback cannot be shown: {type(second).__name__})"
    half = TRACEBACK_CHARACTERS // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n[... cut ...]\n{text[-half:]}"


def outcome_of_error(error: BaseException, rule: RetryRule = ALWAYS, attempt: int = 1) -> Outcome:
    """Return the outcome of an attempt that raised. `rule`: which exceptions are tried again, and after how long."""
    meant = effective_error(error)
    if isinstance(meant, Snooze):
        return Outcome(Result.SNOOZED, error=format_error(meant), retry_in=wait_of(meant))
    retried = rule.is_retried(error, meant)
    return Outcome(
        Result.FAILED,
        error=format_error(error),
        traceback=traceback_text(error),
        retry=retried,
        retry_in=rule.wait(attempt, error, meant) if retried else None,
    )


def refusal_outcome(message: str, *, retry: bool = False, log_tail: str | None = None) -> Outcome:
    """Return the outcome of an attempt that failed by a rule of pgsched and not by an exception."""
    line = replace_unstorable(message)[:ERROR_CHARACTERS]
    return Outcome(Result.FAILED, error=line, retry=retry, log_tail=log_tail)


async def refuse_misfit(task: str, error: str) -> Outcome:
    """Return the outcome of an attempt with wrong arguments, where no other release of the task exists."""
    return refusal_outcome(error)


def outcome_of_value(value: Any) -> Outcome:
    """Return the outcome of an attempt that returned `value`.

    Values that are not JSON (a datetime, a dataclass) are stored as arguments of their type travel. The attempt failed
    for good where the value cannot be stored as a result.
    """
    if value is None:
        return DONE
    try:
        payload.encode(value)
    except ValueError as error:
        return outcome_of_other_value(value, error)
    return Outcome(Result.SUCCEEDED, value=value)


def outcome_of_other_value(value: Any, problem: ValueError) -> Outcome:
    """Return the outcome of an attempt that returned a value that is not JSON as it is (`problem`)."""
    from pgsched.app.codecs.typed_codec import to_json

    try:
        built = to_json(value, "it")
        payload.encode(built)
    except ValueError:
        return refusal_outcome(f"the result ({type(value).__name__}) {replace_unstorable(str(problem))}")
    return Outcome(Result.SUCCEEDED, value=built)


def outcome_of_copied_value(value: Any) -> Outcome:
    """Return `succeeded(value)` with a copy of the value, because the handler may change the value later.

    The result of a batch's next item may be the same dict with other contents.
    """
    outcome = outcome_of_value(value)
    if outcome.value is None or isinstance(value, str | int | float):
        return outcome
    return replace(outcome, value=json.loads(payload.encode(value)))
