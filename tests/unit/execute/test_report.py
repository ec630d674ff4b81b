"""The outcome of an attempt follows from the exception that its handler raised."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgsched import Discard, Retry, Snooze
from pgsched.app.signals import format_error
from pgsched.core.model import Result
from pgsched.execute.outcomes import outcome_of_error


def group(*errors: Exception) -> Exception:
    """Return the errors in a group, as asyncio.TaskGroup raises it."""
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
def test_a_group_counts_as_a_signal_only_if_it_holds_no_other_error(
    error: Any, result: Result, retry: bool, after_s: float
) -> None:
    outcome = outcome_of_error(error)
    assert (outcome.result, outcome.retry) == (result, retry)
    assert outcome.retry_in == (None if after_s is None else timedelta(seconds=after_s))


class Odd(Retry):
    """A user's class that stores the delay unchecked."""

    def __init__(self, after: Any) -> None:
        self.after = after


class Silent(Snooze):
    """A signal without a delay."""

    def __init__(self) -> None:
        pass


class Loud(Snooze):
    """A signal whose delay cannot even be read."""

    def __init__(self) -> None:
        pass

    @property
    def after(self) -> timedelta:  # type: ignore[override]
        raise SystemExit(3)


class Unsure(timedelta):
    def total_seconds(self) -> float:
        raise ValueError("who knows")


ODD = ["soon", -1, float("nan"), float("inf"), timedelta(days=10_000), [], 10**400, Unsure(seconds=5)]


@pytest.mark.parametrize("error", [Silent(), Loud(), *map(Odd, ODD)], ids=repr)
def test_a_signal_without_a_valid_delay_uses_the_back_off(error: Exception) -> None:
    for raised in (error, group(error)):
        outcome = outcome_of_error(raised)
        assert (outcome.retry, outcome.retry_in) == (True, None)
        assert outcome.result is (Result.SNOOZED if isinstance(error, Snooze) else Result.FAILED)


def test_a_number_is_seconds_as_in_the_constructor() -> None:
    assert outcome_of_error(Odd(1.5)).retry_in == timedelta(seconds=1.5)
    assert outcome_of_error(group(Odd(5), Retry(after=3), Odd("soon"))).retry_in == timedelta(seconds=5)


def test_the_error_line_of_a_group_names_its_first_error() -> None:
    line = format_error(group(group(ValueError("no such page")), OSError("disk")))
    assert line.endswith("(2 sub-exceptions): ValueError: no such page")


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_an_error_whose_text_raises_ends_no_worker(ends: type[BaseException]) -> None:
    """The text is the user's code, as the handler is. Otherwise one run would end each worker that takes it."""

    class Ending(Exception):
        def __str__(self) -> str:
            raise ends

    class EndingRetry(Retry):
        @property
        def after(self) -> Any:
            raise ends

        @after.setter
        def after(self, _: Any) -> None: ...

    assert outcome_of_error(Ending()).error == f"Ending: (its text raises {ends.__name__})"
    assert outcome_of_error(EndingRetry()).retry_in is None
