"""Results of Django's tasks before a worker has run them: found by their ids, refreshed, and those that are none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync

from pgsched.contrib.django.tasks_api import TaskResultDoesNotExist, TaskResultStatus, exceptions, task_backends

pytestmark = [pytest.mark.packages, pytest.mark.scram, pytest.mark.usefixtures("project_dsn")]


@pytest.fixture
def db(project_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(project_dsn, autocommit=True) as conn:
        yield conn


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_result_is_found_by_its_id(tasks: Any, way: str) -> None:
    result = tasks.echo.enqueue(1, two=3)
    backend = task_backends["default"]
    for get in (tasks.echo.get_result, backend.get_result) if way == "sync" else (
        async_to_sync(tasks.echo.aget_result), async_to_sync(backend.aget_result),
    ):  # fmt: skip
        found = get(result.id)
        assert dataclasses.replace(found, enqueued_at=result.enqueued_at) == result
        assert abs(found.enqueued_at - result.enqueued_at) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "wrong", ["123456789", "", "abc", "-1", " 1", "1_0", "１", "0", "9" * 19, "9" * 5000, 123456789, None]
)
def test_an_id_that_is_none_has_no_result(tasks: Any, wrong: Any) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        tasks.echo.get_result(wrong)
    with pytest.raises(TaskResultDoesNotExist):
        async_to_sync(task_backends["default"].aget_result)(wrong)


def test_a_result_of_another_task_does_not_match(tasks: Any) -> None:
    result = tasks.answer.enqueue()
    for get in (tasks.echo.get_result, async_to_sync(tasks.echo.aget_result)):
        with pytest.raises(exceptions.TaskResultMismatch, match="Task does not match"):
            get(result.id)


def test_runs_of_other_programs_are_no_results(tasks: Any, db: Any) -> None:
    """A name in a row imports nothing, even if it is the path of a module that could be imported."""
    for kind, task in (("task", "antigravity.fly"), ("shell", "true"), ("task", f"{tasks.__name__}.Declined")):
        row = db.execute("INSERT INTO pgsched.runs (kind, task) VALUES (%s, %s) RETURNING id", [kind, task]).fetchone()
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(str(row[0]))


def test_a_refreshed_result_shows_what_became_of_the_run(tasks: Any, db: Any) -> None:
    result = tasks.welcome.enqueue(user=7)
    before = dataclasses.asdict(result)
    result.refresh()
    async_to_sync(result.arefresh)()
    assert {**dataclasses.asdict(result), "enqueued_at": 0} == {**before, "enqueued_at": 0}
    db.execute("SELECT pgsched.cancel(%s, 'not now')", [int(result.id)])
    result.refresh()
    assert result.status == TaskResultStatus.FAILED and result.is_finished and result.finished_at
    (error,) = result.errors
    assert error.exception_class.__name__ == "CancelledError" and "not now" in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_run_in_a_queue_of_the_operator_is_a_result_all_the_same(tasks: Any, db: Any) -> None:
    result = tasks.welcome.enqueue(7)
    db.execute("SELECT pgsched.update_run(%s, queue => 'elsewhere', priority => 0)", [int(result.id)])
    assert tasks.welcome.get_result(result.id).status == TaskResultStatus.READY


def test_a_result_that_was_looked_up_has_its_arguments_by_name(tasks: Any) -> None:
    """However they were given: SQL and unique keys use the names. A refresh leaves them as they were given."""
    result = tasks.welcome.enqueue(7, name="Ada")
    assert (result.args, result.kwargs) == ([7], {"name": "Ada"})
    found = tasks.welcome.get_result(result.id)
    assert (found.args, found.kwargs) == ([], {"user": 7, "name": "Ada"})
    result.refresh()
    assert (result.args, result.kwargs) == ([7], {"name": "Ada"})
