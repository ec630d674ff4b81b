"""What a handler raises to say what becomes of its run, in each of the places where it may run."""

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
    """Runs a task in a place to its outcome; all attempts in a process are in the same one."""
    with executing(PythonExecutor(app.tasks, 1, app)) as outcome_of:
        yield lambda task, place, **args: outcome_of(claim("task", f"{task}.{place}", args))


@pytest.mark.parametrize("place", PLACES)
def test_a_handler_can_ask_to_be_called_later(place: str, run: Run) -> None:
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
def test_what_a_class_of_the_users_says_in_its_own_way(
    what: str, result: Result, retry_in: Any, place: str, run: Run
) -> None:
    outcome = run("says_in_its_own_way", place, what=what)
    assert (outcome.result, outcome.retry, outcome.retry_in) == (result, True, retry_in)


@pytest.mark.parametrize("place", PLACES)
def test_a_handler_can_ask_to_be_called_again_at_once(place: str, run: Run) -> None:
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
def test_exceptions_that_never_retry(task: str, which: str, retry: bool, place: str, run: Run) -> None:
    outcome = run(task, place, which=which)
    assert (outcome.result, outcome.retry) == (Result.FAILED, retry)


@pytest.mark.parametrize("given", ["ValueError", (ValueError, "OSError"), [ValueError], 5, int])
def test_only_exception_classes_can_be_named(given: Any) -> None:
    with pytest.raises(TaskError, match="no_retry: expected exception classes"):
        App().task(no_retry=given)(lambda: None)
