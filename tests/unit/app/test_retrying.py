"""Which failures of a task are tried again, and after how long: `no_retry`, `retry_on` and a back-off function."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgsched import App, Discard, InputError, Retry, Snooze, TaskError
from pgsched.app.rules.retrying import RetryRule
from pgsched.execute.outcomes import outcome_of_error


def rule_of(**options: Any) -> RetryRule:
    app = App("shop")
    app.task(name="t", **options)(lambda: None)
    return app.tasks["t"].retry_rule


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (OSError("disk"), True),
        (TimeoutError("slow"), True),  # a kind of OSError
        (ValueError("no"), False),
        (Retry(), True),
        (Discard("no"), False),
        (ExceptionGroup("several", [OSError("a"), TimeoutError("b")]), True),
        (ExceptionGroup("several", [OSError("a"), ValueError("b")]), False),
    ],
)
def test_only_exceptions_of_retry_on_are_tried_again(error: Exception, retried: bool) -> None:
    assert outcome_of_error(error, rule_of(retry_on=OSError)).retry is retried


def test_a_function_computes_the_back_off() -> None:
    def backoff(attempt: int, error: BaseException) -> float | timedelta:
        return 60.0 * attempt if isinstance(error, OSError) else timedelta(seconds=attempt)

    rule = rule_of(backoff=backoff)
    assert outcome_of_error(OSError(), rule, 2).retry_in == timedelta(minutes=2)
    assert outcome_of_error(ValueError(), rule, 3).retry_in == timedelta(seconds=3)
    assert outcome_of_error(Retry(after=5), rule, 3).retry_in == timedelta(seconds=5)
    assert outcome_of_error(Retry(), rule, 3).retry_in == timedelta(seconds=3)
    assert outcome_of_error(Discard("no"), rule, 3).retry_in is None


@pytest.mark.parametrize(
    "wrong", [-1, "soon", None, float("nan"), float("inf"), timedelta(days=9999), ZeroDivisionError]
)
def test_a_function_that_fails_leaves_the_ordinary_back_off(wrong: Any) -> None:
    def backoff(attempt: int, error: BaseException) -> Any:
        if isinstance(wrong, type):
            raise wrong
        return wrong

    outcome = outcome_of_error(OSError("disk"), rule_of(backoff=backoff))
    assert (outcome.retry, outcome.retry_in, outcome.error) == (True, None, "OSError: disk")


@pytest.mark.parametrize("given", ["ValueError", (ValueError, "OSError"), [ValueError], 5])
def test_retry_on_takes_only_exception_classes(given: Any) -> None:
    with pytest.raises(TaskError, match="retry_on: expected exception classes"):
        rule_of(retry_on=given)


def test_retry_on_and_no_retry_exclude_each_other() -> None:
    with pytest.raises(TaskError, match="give either retry_on or no_retry"):
        rule_of(retry_on=OSError, no_retry=ValueError)


def test_a_function_belongs_to_the_task() -> None:
    task = App("shop").task(name="t", backoff=lambda attempt, error: 5)(lambda: None)
    assert task.values["backoff"] is None
    with pytest.raises(InputError, match=r"backoff: .* is not one of exponential"):
        task.options(backoff=lambda attempt, error: 5)


def test_a_wait_may_be_a_text() -> None:
    assert Retry(after="1h 30m").after == timedelta(minutes=90)
    assert Snooze("10 minutes").after == timedelta(minutes=10)
    task = App("shop").task(name="t", backoff=lambda attempt, error: f"{attempt} minutes")(lambda: None)
    assert task.retry_rule.wait(2, OSError(), OSError()) == timedelta(minutes=2)
    for signal in (Retry, Snooze):
        with pytest.raises(ValueError, match='after: "soon" is not a time such as 90s'):
            signal(after="soon")
