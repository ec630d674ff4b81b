"""The exceptions by which a handler decides about its run (snooze, retry, no retry), wherever the handler runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pgsched import App, Snooze, TaskError
from pgsched.app.base import import_app
from pgsched.core.model import Outcome, Result
from pgsched.execute.python.executor import PythonExecutor
from tests.support.executing import claim, executing

PLACES = ("loop", "thread", "process", "process_async")
app = import_app("tests.support.apps.contract:app")


Run = Callable[..., Outcome]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Yield a function that runs a task to its outcome; all attempts in a process share one process."""
    with executing(PythonExecutor(app.tasks, 1, app)) as outcome_of:
        yield lambda task, place, **args: outcome_of(claim("task", f"{task}.{place}", args))


@pytest.mark.parametrize("place", PLACES)
def test_a_handler_can_snooze_its_run(place: str, run: Run) -> None:
    outcome = run("snoozes", place)
    assert (outcome.result, outcome.retry_in) == (Result.SNOOZED, timedelta(seconds=90))
    assert outcome.error == "Snooze: the market is closed"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("what", "result", "retry_in"),
    [
        ("nothing", Result.FAILED, None),
        ("seconds", Result.SNOOZED, timedelta(seconds=90)),
        ("nonsense", Result.SNOOZED, None),
    ],
)
def test_an_exception_class_of_the_user_can_ask_for_a_retry_or_a_snooze(
    what: str, result: Result, retry_in: Any, place: str, run: Run
) -> None:
    outcome = run("says_in_its_own_way", place, what=what)
    assert (outcome.result, outcome.retry, outcome.retry_in) == (result, True, retry_in)


@pytest.mark.parametrize("place", PLACES)
def test_a_handler_can_ask_for_a_retry_at_once(place: str, run: Run) -> None:
    outcome = run("again_at_once", place)
    assert (outcome.result, outcome.retry_in) == (Result.FAILED, timedelta(0))


@pytest.mark.parametrize("after", [-1, float("inf"), timedelta(days=10_000)])
def test_a_snooze_that_no_database_could_store_is_refused(after: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        Snooze(after)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("task", "which", "retry"),
    [
        ("picky", "its own", False),
        ("picky", "another", True),
        ("picky", "a group of its own", False),
        ("picky", "a mixed group", True),
        ("picky", "a group of discards", False),
        ("pickier", "another", False),
        ("pickier", "a retry", True),
    ],
)
def test_exceptions_named_in_no_retry_are_not_retried(task: str, which: str, retry: bool, place: str, run: Run) -> None:
    outcome = run(task, place, which=which)
    assert (outcome.result, outcome.retry) == (Result.FAILED, retry)


@pytest.mark.parametrize("place", PLACES)
def test_retry_on_and_a_back_off_function_hold_wherever_the_handler_runs(place: str, run: Run) -> None:
    another, own = run("computed", place, which="another"), run("computed", place, which="its own")
    assert (another.retry, another.retry_in) == (True, timedelta(seconds=30))
    assert (own.retry, own.retry_in) == (False, None)


@pytest.mark.parametrize("given", ["ValueError", (ValueError, "OSError"), [ValueError], 5, int])
def test_no_retry_takes_only_exception_classes(given: Any) -> None:
    with pytest.raises(TaskError, match="no_retry: expected exception classes"):
        App("test").task(no_retry=given)(lambda: None)
