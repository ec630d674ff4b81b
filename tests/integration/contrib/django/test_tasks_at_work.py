"""Django's tasks in a worker: results and errors as the interface says, the context, signals, retries, priorities."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connections
from django.utils import timezone

from pgsched.contrib.django.tasks_api import TaskResultStatus, signals, task_backends
from pgsched.core.model import Result
from pgsched.execute.python.executor import PythonExecutor
from pgsched.testing import drain
from tests.support.django_project.settings import shop_app
from tests.support.executing import claim

pytestmark = [pytest.mark.packages, pytest.mark.scram]

CALLS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "echo": ("echo", [1, [2]], {"a": {"b": None}}),
    "echo_async": ("echo_async", [1], {"a": 2}),
    "named": ("welcome", [7], {"name": "Ada"}),
    "value": ("fail_with_value", [], {}),
    "lines": ("fail_with_value", ["one\nos.path.ValueError: two"], {}),
    "async": ("fail_async", [], {}),
    "exit": ("fail_with_exit", [], {}),
    "chain": ("fail_in_a_chain", [], {}),
    "own": ("decline", [], {}),
    "function": ("return_a_function", [], {}),
    "tuple": ("return_a_tuple", [], {}),
    "id": ("own_id", [], {}),
    "state": ("own_state", [5], {}),
    "third": ("third_time", [], {}),
    "long": ("too_long", [], {}),
    "names": ("positional_names", ["c"], {"run": 2}),
    "positions": ("takes_connection", ["c", 1, 2, 3], {"last": 4}),
}


class Ended:
    """The runs of CALLS after a worker has run them, and what the signals have brought."""

    def __init__(self, tasks: Any) -> None:
        self.started: list[tuple[str, str, bool]] = []
        self.finished: list[tuple[str, str, str]] = []
        self.began = timezone.now()
        self.results = {
            name: getattr(tasks, task).enqueue(*args, **kwargs) for name, (task, args, kwargs) in CALLS.items()
        }
        signals.task_started.connect(self.note_started)
        signals.task_finished.connect(self.note_finished)
        signals.task_started.connect(fail_always)
        try:
            self.outcome = drain(shop_app(), scheduled=True, concurrency=4)
        finally:
            for signal, receiver in (
                (signals.task_started, self.note_started),
                (signals.task_started, fail_always),
                (signals.task_finished, self.note_finished),
            ):
                signal.disconnect(receiver)
        for result in self.results.values():
            result.refresh()

    def note_started(self, sender: Any, task_result: Any, **_: Any) -> None:
        self.started.append((task_result.id, str(task_result.status), task_result.enqueued_at is not None))

    def note_finished(self, sender: Any, task_result: Any, **_: Any) -> None:
        value = task_result.return_value if task_result.status == TaskResultStatus.SUCCESSFUL else None
        errors = [error.exception_class_path for error in task_result.errors]
        self.finished.append((task_result.id, str(task_result.status), repr(value if value is not None else errors)))


def fail_always(**_: Any) -> None:
    raise RuntimeError("a receiver that fails")


@pytest.fixture(scope="module")
def ended(project_dsn: str, tasks: Any) -> Ended:
    return Ended(tasks)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("echo", [[1, [2]], {"a": {"b": None}}]),
        ("echo_async", [[1], {"a": 2}]),
        ("named", "welcome, Ada"),
        ("tuple", ["a", "b", {"c": [1, 2]}]),
        ("state", ["RUNNING", {"given": 5}, 1, 1, 5, True]),
        ("third", [3, 2]),
        ("names", ["c", 2]),
        ("positions", ["c", 1, [2, 3], 4]),
    ],
)
def test_a_task_that_returns_is_successful(ended: Ended, name: str, value: Any) -> None:
    result = ended.results[name]
    attempts = 3 if name == "third" else 1
    assert result.status == TaskResultStatus.SUCCESSFUL and result.is_finished
    assert result.return_value == value
    assert result.attempts == len(result.worker_ids) == attempts and all(result.worker_ids)
    assert ended.began - timedelta(minutes=1) < result.enqueued_at <= result.started_at <= result.last_attempted_at
    assert result.last_attempted_at <= result.finished_at
    assert len(result.errors) == attempts - 1


def test_the_context_has_the_id_of_the_result(ended: Ended) -> None:
    assert ended.results["id"].return_value == ended.results["id"].id


@pytest.mark.parametrize(
    ("name", "path", "last_line"),
    [
        ("value", "builtins.ValueError", "ValueError: no luck"),
        ("async", "builtins.LookupError", "LookupError: not here"),
        ("exit", "builtins.SystemExit", "SystemExit: this is the end"),
        ("chain", "builtins.ValueError", "ValueError: second"),
        ("own", "tests.support.django_project.tasks.Declined", "tests.support.django_project.tasks.Declined: card 4"),
        ("lines", "builtins.ValueError", "os.path.ValueError: two"),
        ("function", "pgsched.contrib.django.handlers.ResultNotJson", None),
        ("long", "pgsched.errors.TimedOut", None),
    ],
)
def test_a_task_that_raises_has_failed(ended: Ended, name: str, path: str, last_line: str | None) -> None:
    result = ended.results[name]
    assert result.status == TaskResultStatus.FAILED and result.is_finished
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    (error,) = result.errors
    assert error.exception_class_path == path and issubclass(error.exception_class, BaseException)
    assert last_line is None or error.traceback.splitlines()[-1] == last_line
    assert result.attempts == 1 and result.enqueued_at <= result.started_at <= result.finished_at


def test_what_is_not_json_is_a_type_error(ended: Ended) -> None:
    (error,) = ended.results["function"].errors
    assert issubclass(error.exception_class, TypeError) and "Unsupported type" in error.traceback


def test_the_chain_of_an_exception_is_in_the_traceback(ended: Ended) -> None:
    (error,) = ended.results["chain"].errors
    assert "KeyError: 'first'" in error.traceback and 'ValueError(ValueError("second"))' in error.traceback


def test_signals_tell_of_the_beginning_of_each_attempt_and_the_end_of_each_run(ended: Ended) -> None:
    """A receiver that fails changes nothing."""
    started = [run_id for run_id, *_ in ended.started]
    for name, result in ended.results.items():
        assert started.count(result.id) == (3 if name == "third" else 1), name
    assert {status for _, status, _ in ended.started} == {"RUNNING"}
    assert all(has_time for _, _, has_time in ended.started)
    finished = {run_id: (status, shown) for run_id, status, shown in ended.finished}
    assert len(ended.finished) == len(finished) == len(CALLS)
    for name, result in ended.results.items():
        value = result.return_value if result.status == TaskResultStatus.SUCCESSFUL else None
        shown = repr(value if value is not None else [error.exception_class_path for error in result.errors])
        assert finished[result.id] == (str(result.status), shown), name


def test_the_worker_counts_the_runs_as_django_does(ended: Ended) -> None:
    states = [result.status for result in ended.results.values()]
    assert ended.outcome == {
        "succeeded": states.count(TaskResultStatus.SUCCESSFUL), "dead": states.count(TaskResultStatus.FAILED),
    }  # fmt: skip


@pytest.mark.usefixtures("project_dsn")
def test_of_higher_priority_goes_first_and_of_equal_the_older_one(tasks: Any) -> None:
    tasks.ran.clear()
    for user, priority in enumerate((-100, 0, 100, 20, 0, 40)):
        tasks.welcome.using(priority=priority).enqueue(user)
    assert drain(shop_app(), "mail") == {"succeeded": 6}
    assert [user for user, _ in tasks.ran] == [2, 5, 3, 1, 4, 0]


@pytest.fixture
def killing(project_dsn: str) -> Iterator[Any]:
    """A function that ends all sessions of Django in the database, as a restart of the server does."""
    with psycopg.connect(project_dsn, autocommit=True) as conn:
        yield lambda: conn.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = ''"
        )
    connections.close_all()


@pytest.mark.parametrize("name", ["count_users", "count_users_async"])
def test_a_handler_that_uses_the_orm_outlives_a_restart_of_the_database(tasks: Any, name: str, killing: Any) -> None:
    app, path = shop_app(), f"{tasks.__name__}.{name}"

    async def main() -> list[Result]:
        executor = PythonExecutor(app.tasks, 1, hooks=app.hooks)  # each attempt in the same thread
        found = [(await executor.execute(claim("task", path))).result]
        killing()
        found += [(await executor.execute(claim("task", path))).result for _ in range(3)]
        await executor.close()
        return found

    found = asyncio.run(main())
    assert found[0] is Result.SUCCEEDED
    assert found[2:] == [Result.SUCCEEDED] * 2, "the connection is looked at before and after each attempt"


def test_async_attempts_have_connections_of_their_own(tasks: Any, killing: Any) -> None:
    """One ends while the other reads: the connection of the other is not closed, which each end does to its own."""
    app = shop_app()

    async def main() -> list[Any]:
        executor = PythonExecutor(app.tasks, 2, hooks=app.hooks)
        reading = asyncio.create_task(executor.execute(claim("task", f"{tasks.__name__}.session_twice")))
        await asyncio.wait_for(tasks.begun.wait(), 30)
        other = await executor.execute(claim("task", f"{tasks.__name__}.session_async"))
        tasks.go_on.set()
        outcome = await reading
        await executor.close()
        return [outcome.value, other.value]

    (first, second), other = asyncio.run(main())
    assert first == second != other


@pytest.mark.usefixtures("project_dsn")
def test_arguments_of_another_release_are_dead_at_once(tasks: Any) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT pgsched.enqueue(%s, '{\"user\": 3}', max_attempts => 5)",
                       [f"{tasks.__name__}.takes_connection"])  # fmt: skip
        run_id = str(cursor.fetchone()[0])
    drain(shop_app())
    result = task_backends["default"].get_result(run_id)
    (error,) = result.errors
    assert result.status == TaskResultStatus.FAILED and "missing a required" in error.traceback
    assert error.exception_class_path == "pgsched.contrib.django.arguments.Misfit"


@pytest.mark.usefixtures("project_dsn")
def test_a_run_that_sql_has_made_is_a_result_too(tasks: Any) -> None:
    with connections["default"].cursor() as cursor:
        sql = "SELECT pgsched.enqueue(%s, '{\"user\": 3}', queue => 'mail')"
        cursor.execute(sql, [f"{tasks.__name__}.welcome"])
        run_id = str(cursor.fetchone()[0])
    assert drain(shop_app(), "mail")["succeeded"] == 1
    result = task_backends["default"].get_result(run_id)
    assert result.return_value == "welcome, you" and (result.args, result.kwargs) == ([], {"user": 3})


@pytest.mark.usefixtures("project_dsn")
def test_the_orm_and_the_success_of_a_run_are_one_transaction_of_django(tasks: Any) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("CREATE TABLE paid (id int)")
    silent = ("set_rollback", "caught", "broken")  # Django rolls back without an exception
    ways = ("connection", "alias", "fails", "nested", *silent)
    results = {how: tasks.pay.enqueue(number, how) for number, how in enumerate(ways)}
    asserted = tasks.assert_and_pay.enqueue(7)
    drain(shop_app())
    for result in (asserted, *results.values()):
        result.refresh()
    assert results["connection"].return_value == "paid 0" and results["alias"].return_value == "paid 1"
    assert [error.exception_class_path for error in results["fails"].errors] == ["builtins.ValueError"]
    assert "in a transaction already: leave `atomic` first" in results["nested"].errors[0].traceback
    for how in silent:
        (error,) = results[how].errors
        assert error.exception_class_path == "django.db.transaction.TransactionManagementError", how
        assert ("rolls it back" in error.traceback) is (how != "broken")
    assert "the connection commits by itself" in asserted.errors[0].traceback, "outside of atomic"
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT id FROM paid ORDER BY id")
        assert cursor.fetchall() == [(0,), (1,), (7,)]
        cursor.execute("SELECT count(*) FROM pgsched.runs WHERE task = %s", [tasks.answer.module_path])
        assert cursor.fetchone() == (2,), "what was enqueued in the transaction that failed is gone"


@pytest.mark.usefixtures("project_dsn")
def test_the_app_has_the_tasks_and_jobs_of_the_project(tasks: Any) -> None:
    app = shop_app()
    assert app.name == "shop"
    mine = {name.removeprefix(f"{tasks.__name__}.") for name in app.tasks}
    assert {"echo", "welcome", "third_time"} <= mine
    jobs = {job.name: job for job in app.declared_jobs}
    assert [*jobs] == ["hourly welcome", "nightly welcome"]
    nightly = jobs["nightly welcome"]
    assert (nightly.task, nightly.schedule, nightly.timezone, nightly.args) == (
        f"{tasks.__name__}.welcome_again", "0 3 * * *", "Europe/Vienna", {"user": 1},
    )  # fmt: skip
    assert jobs["hourly welcome"].args == {"user": 2, "name": "all"}
    assert jobs["hourly welcome"].timezone == "America/Chicago", "that of the project"
    assert nightly.policies["max_attempts"] == 1 and nightly.policies["description"] == "why"
    shop_app()
    assert len(app.declared_jobs) == 2, "once"
