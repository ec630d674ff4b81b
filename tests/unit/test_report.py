"""What becomes of an attempt by what its handler raised."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgsched import Discard, Retry, Snooze
from pgsched.execute.report import failed, one_line
from pgsched.model import Result


def group(*errors: Exception) -> BaseException:
    """As asyncio.TaskGroup raises it."""
    return ExceptionGroup("unhandled errors in a TaskGroup", errors)


@pytest.mark.parametrize(
    ("error", "result", "retry", "after_s"),
    [
        (group(Snooze(5)), Result.SNOOZED, True, 5),
        (group(Snooze(5), group(Snooze(60)), Snooze(7)), Result.SNOOZED, True, 60),
        (group(Retry(after=5), Retry()), Result.FAILED, True, 5),
        (group(Retry()), Result.FAILED, True, None),
        (group(Discard("no")), Result.FAILED, False, None),
        (group(Snooze(5), ValueError("no")), Result.FAILED, True, None),
        (group(Retry(after=5), Discard("no")), Result.FAILED, True, None),
    ],
)
def test_a_group_of_one_sort_means_what_that_means(error: Any, result: Result, retry: bool, after_s: float) -> None:
    outcome = failed(error)
    assert (outcome.result, outcome.retry) == (result, retry)
    assert outcome.retry_in == (None if after_s is None else timedelta(seconds=after_s))


def test_the_line_of_a_group_says_what_its_first_error_was() -> None:
    line = one_line(group(group(ValueError("no such page")), OSError("disk")))
    assert line.endswith("(2 sub-exceptions): ValueError: no such page")
